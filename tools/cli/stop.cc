#include "tools/cli/stop.h"

#include <signal.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/net.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/flags.h"
#include "tools/cli/killed_heads.h"
#include "tools/cli/process_tree.h"
#include "tools/cli/time_limit.h"

namespace miniray::cli {
namespace {

// Both internal. What a daemon leaves ends with it by itself, if it can.
constexpr absl::Duration kOrphanGrace = absl::Seconds(1);
// A killed process is gone as soon as the kernel has cleaned up after it.
constexpr absl::Duration kKillWait = absl::Seconds(5);

std::string Describe(const ProcessRecord& record) {
  if (record.role == ProcessRole::kHead) {
    return absl::StrCat("the head at ", record.address, " (pid ", record.pid,
                        ")");
  }
  return absl::StrCat("the worker daemon of ", record.node_id,
                      ", which joined ", record.address, " (pid ", record.pid,
                      ")");
}

ProcessId IdOf(const ProcessRecord& record) {
  return {record.pid, record.start_ticks};
}

// How they are stopped.
struct Manner {
  bool force = false;  // Killed at once, else after the grace.
  absl::Duration grace;
  absl::Time deadline;  // Nothing is done after it.
};

// Returns those that are still there. All of `records` are of one role.
std::vector<ProcessRecord> StopAll(const std::vector<ProcessRecord>& records,
                                   const Manner& manner) {
  // What the daemons' descendants are must be known before they end.
  std::vector<ProcessId> processes, descendants;
  for (const ProcessRecord& record : records) {
    processes.push_back(IdOf(record));
    for (const ProcessId& child : Descendants(record.pid)) {
      descendants.push_back(child);
    }
  }
  if (!manner.force) {
    for (const ProcessId& process : processes) SendSignal(process, SIGTERM);
    WaitUntilGone(processes,
                  std::min(manner.grace, manner.deadline - absl::Now()));
  }
  const bool may_kill = manner.force || absl::Now() < manner.deadline;
  std::vector<ProcessRecord> left;
  for (const ProcessRecord& record : records) {
    const bool killed = IsAlive(record);
    if (killed && may_kill) KillTree(IdOf(record), kKillWait);
    if (IsAlive(record)) {
      left.push_back(record);
      continue;
    }
    (void)RemoveProcessRecord(record.pid);
    if (killed && record.role == ProcessRole::kHead &&
        !record.state_dir.empty()) {
      // It had no time to say that the cluster has ended.
      (void)EndClusterIn(record.state_dir);
    }
    std::cout << (killed ? "Killed " : "Stopped ") << Describe(record)
              << (killed && !manner.force ? ", which did not stop" : "")
              << ".\n";
  }
  // They end with their daemon by themselves, if they can.
  if (!left.empty() && !may_kill) return left;
  WaitUntilGone(descendants, kOrphanGrace);
  for (const ProcessId& orphan : descendants) {
    if (IsAlive(orphan)) KillTree(orphan, kKillWait);
  }
  return left;
}

// What a stop concerns.
struct Targets {
  std::vector<ProcessRecord> daemons;
  std::vector<ProcessRecord> heads;
  std::vector<KilledHead> killed;

  bool empty() const {
    return daemons.empty() && heads.empty() && killed.empty();
  }
};

absl::StatusOr<Targets> FindAll() {
  MR_ASSIGN_OR_RETURN(std::vector<ProcessRecord> records, ListProcessRecords());
  Targets all;
  for (ProcessRecord& record : records) {
    (record.role == ProcessRole::kHead ? all.heads : all.daemons)
        .push_back(std::move(record));
  }
  all.killed = ListKilledHeads();
  return all;
}

// Something that goes on, and the address by which it can be ended.
struct LeftAlone {
  std::string what;
  std::string address;
};

// Takes out what programs have started for themselves; returns it.
std::vector<LeftAlone> LeaveToPrograms(Targets* targets) {
  std::vector<LeftAlone> left;
  std::vector<ProcessRecord> heads;
  std::erase_if(targets->heads, [&](const ProcessRecord& head) {
    if (!head.lifeline) return false;
    left.push_back(
        {absl::StrCat("the cluster at ", head.address), head.address});
    heads.push_back(head);
    return true;
  });
  const auto serves = [](const ProcessRecord& daemon) {
    return [&daemon](const ProcessRecord& head) {
      return ServesAddress(head, daemon.address);
    };
  };
  std::erase_if(targets->daemons, [&](const ProcessRecord& daemon) {
    // One that a head has started (start --head --num_cpus) goes with it.
    if (!daemon.lifeline ||
        std::any_of(targets->heads.begin(), targets->heads.end(),
                    serves(daemon)) ||
        std::any_of(targets->killed.begin(), targets->killed.end(),
                    [&](const KilledHead& head) {
                      return ListenedAt(head, daemon.address);
                    })) {
      return false;
    }
    if (std::none_of(heads.begin(), heads.end(), serves(daemon))) {
      left.push_back({Describe(daemon), daemon.address});
    }
    return true;
  });
  return left;
}

// What belongs to the head at `address`, by whatever name it has there.
Targets Select(const Targets& all, const std::string& address) {
  Targets some;
  for (const ProcessRecord& head : all.heads) {
    if (ServesAddress(head, address)) some.heads.push_back(head);
  }
  for (const KilledHead& head : all.killed) {
    if (ListenedAt(head, address)) some.killed.push_back(head);
  }
  for (const ProcessRecord& daemon : all.daemons) {
    bool joined = ServesAddress(daemon, address);
    for (const ProcessRecord& head : some.heads) {
      joined = joined || ServesAddress(head, daemon.address);
    }
    for (const KilledHead& head : some.killed) {
      joined = joined || ListenedAt(head, daemon.address);
    }
    if (joined) some.daemons.push_back(daemon);
  }
  return some;
}

absl::Status NothingAt(const std::string& address, const Targets& all) {
  std::set<std::string> known;
  for (const ProcessRecord& record : all.heads) known.insert(record.address);
  for (const ProcessRecord& record : all.daemons) known.insert(record.address);
  for (const KilledHead& head : all.killed) known.insert(head.address);
  return absl::NotFoundError(absl::StrCat(
      "nothing to stop: no head at ", address,
      " and no worker daemon of it is known on this machine; ",
      known.empty()
          ? "nor is any other"
          : absl::StrCat("there are those of ", absl::StrJoin(known, ", "))));
}

absl::Status End(const std::vector<KilledHead>& heads) {
  absl::Status first;
  for (const KilledHead& head : heads) {
    const absl::Status status = EndCluster(head);
    if (status.ok()) {
      std::cout << "Ended the cluster of the head at " << head.address
                << ", which was killed.\n";
    } else if (first.ok()) {
      first =
          Annotate(status, absl::StrCat("the killed head at ", head.address));
    }
  }
  return first;
}

}  // namespace

absl::Status CheckStopFlags(const CommandLine& line) {
  MR_RETURN_IF_ERROR(CheckTimeoutFlag(line));
  const absl::Duration grace = absl::GetFlag(FLAGS_grace);
  if (grace < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--grace=", absl::FormatDuration(grace),
                     ": must not be negative; write e.g. 500ms, 10s, 2m"));
  }
  if (line.Has("grace") && absl::GetFlag(FLAGS_force)) {
    return absl::InvalidArgumentError(
        "--force kills at once: it leaves no --grace");
  }
  if (!line.Has("address")) return absl::OkStatus();
  return Annotate(ParseHostPort(absl::GetFlag(FLAGS_address)).status(),
                  "--address");
}

absl::Status RunStop(const CommandLine& line) {
  MR_ASSIGN_OR_RETURN(Targets targets, FindAll());
  std::vector<LeftAlone> left_alone;
  if (line.Has("address")) {
    const std::string address = absl::GetFlag(FLAGS_address);
    Targets some = Select(targets, address);
    if (some.empty()) return NothingAt(address, targets);
    targets = std::move(some);
  } else {
    left_alone = LeaveToPrograms(&targets);
  }
  for (const LeftAlone& left : left_alone) {
    std::cout << "Left alone: " << left.what
              << ", which ends with the program that started it; to end it "
                 "now: miniray stop --address "
              << left.address << "\n";
  }
  if (targets.empty() && !left_alone.empty()) return absl::OkStatus();
  if (targets.empty()) {
    std::cout << "Nothing to stop: no head or worker daemon of yours is known "
                 "on this machine.\n";
    return absl::OkStatus();
  }
  const absl::Duration limit = TimeLimit(line, absl::InfiniteDuration());
  const Manner manner = {.force = absl::GetFlag(FLAGS_force),
                         .grace = absl::GetFlag(FLAGS_grace),
                         .deadline = absl::Now() + limit};
  // Daemons tell their head that they leave, so they go first.
  std::vector<ProcessRecord> left = StopAll(targets.daemons, manner);
  if (!left.empty() && absl::Now() >= manner.deadline) {
    left.insert(left.end(), targets.heads.begin(), targets.heads.end());
  } else {
    for (ProcessRecord& head : StopAll(targets.heads, manner)) {
      left.push_back(std::move(head));
    }
  }
  const absl::Status ended = End(targets.killed);
  RemoveOldHeadStates();
  if (left.empty()) return ended;
  const std::string names =
      absl::StrJoin(left, ", ", [](std::string* out, const ProcessRecord& r) {
        absl::StrAppend(out, Describe(r));
      });
  if (absl::Now() >= manner.deadline) {
    return absl::DeadlineExceededError(absl::StrCat(
        "not all has stopped within ", absl::FormatDuration(limit),
        " (--timeout): ", names, "; to kill it: miniray stop --force"));
  }
  return absl::InternalError(
      absl::StrCat("still there after SIGKILL: ", names));
}

}  // namespace miniray::cli
