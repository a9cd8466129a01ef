// Processes and their descendants, by pid and start time, so that a pid that
// was given to another process meanwhile is never signalled.

#ifndef MINIRAY_TOOLS_CLI_PROCESS_TREE_H_
#define MINIRAY_TOOLS_CLI_PROCESS_TREE_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace miniray::cli {

struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;

  bool operator==(const ProcessId&) const = default;
};

bool IsAlive(const ProcessId& process);

// Children, their children and so on, but not the calling process.
std::vector<ProcessId> Descendants(pid_t pid);

// Kills the process and its descendants; each is stopped first, so that none
// can start others meanwhile.
void KillTree(const ProcessId& root, absl::Duration timeout);

// Does nothing if the process is gone.
void SendSignal(const ProcessId& process, int signal);

// Returns false if one of them still lives after `timeout`.
bool WaitUntilGone(const std::vector<ProcessId>& processes,
                   absl::Duration timeout);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_PROCESS_TREE_H_
