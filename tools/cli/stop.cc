#include "tools/cli/stop.h"

#include <signal.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/state_folder.h"
#include "tools/cli/flags.h"
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
      (void)StateFolder::Finish(record.state_dir);
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

}  // namespace

absl::Status RunStop(const CommandLine& line) {
  MR_ASSIGN_OR_RETURN(const std::vector<ProcessRecord> records,
                      ListProcessRecords());
  if (records.empty()) {
    std::cout << "Nothing to stop: no head or worker daemon of yours is known "
                 "on this machine.\n";
    return absl::OkStatus();
  }
  // Daemons tell their head that they leave, so they go first.
  std::vector<ProcessRecord> left;
  for (const ProcessRole role :
       {ProcessRole::kWorkerDaemon, ProcessRole::kHead}) {
    std::vector<ProcessRecord> some;
    for (const ProcessRecord& record : records) {
      if (record.role == role) some.push_back(record);
    }
    for (ProcessRecord& record : StopAll(some, absl::GetFlag(FLAGS_force))) {
      left.push_back(std::move(record));
    }
  }
  if (left.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "still there after SIGKILL: ",
      absl::StrJoin(left, ", ", [](std::string* out, const ProcessRecord& r) {
        absl::StrAppend(out, Describe(r));
      })));
}

}  // namespace miniray::cli
