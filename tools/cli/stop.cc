#include "tools/cli/stop.h"

#include <signal.h>

#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "runtime/base/net.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/flags.h"
#include "tools/cli/killed_heads.h"
#include "tools/cli/process_tree.h"

namespace miniray::cli {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(10);
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

// Returns those that are still there. All of `records` are of one role.
std::vector<ProcessRecord> StopAll(const std::vector<ProcessRecord>& records,
                                   bool force) {
  // What the daemons' descendants are must be known before they end.
  std::vector<ProcessId> processes, descendants;
  for (const ProcessRecord& record : records) {
    processes.push_back(IdOf(record));
    for (const ProcessId& child : Descendants(record.pid)) {
      descendants.push_back(child);
    }
  }
  if (!force) {
    for (const ProcessId& process : processes) SendSignal(process, SIGTERM);
    WaitUntilGone(processes, kGrace);
  }
  std::vector<ProcessRecord> left;
  for (const ProcessRecord& record : records) {
    const bool killed = IsAlive(record);
    if (killed) KillTree(IdOf(record), kKillWait);
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
              << (killed && !force ? ", which did not stop" : "") << ".\n";
  }
  // They end with their daemon by themselves, if they can.
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
  if (!line.Has("address")) return absl::OkStatus();
  return Annotate(ParseHostPort(absl::GetFlag(FLAGS_address)).status(),
                  "--address");
}

absl::Status RunStop(const CommandLine& line) {
  MR_ASSIGN_OR_RETURN(Targets targets, FindAll());
  if (line.Has("address")) {
    const std::string address = absl::GetFlag(FLAGS_address);
    Targets some = Select(targets, address);
    if (some.empty()) return NothingAt(address, targets);
    targets = std::move(some);
  }
  if (targets.empty()) {
    std::cout << "Nothing to stop: no head or worker daemon of yours is known "
                 "on this machine.\n";
    return absl::OkStatus();
  }
  const bool force = absl::GetFlag(FLAGS_force);
  // Daemons tell their head that they leave, so they go first.
  std::vector<ProcessRecord> left = StopAll(targets.daemons, force);
  for (ProcessRecord& head : StopAll(targets.heads, force)) {
    left.push_back(std::move(head));
  }
  const absl::Status ended = End(targets.killed);
  RemoveOldHeadStates();
  if (left.empty()) return ended;
  return absl::InternalError(absl::StrCat(
      "still there after SIGKILL: ",
      absl::StrJoin(left, ", ", [](std::string* out, const ProcessRecord& r) {
        absl::StrAppend(out, Describe(r));
      })));
}

}  // namespace miniray::cli
