// Finding processes that started in an actor and left its process group: all
// carry the mark of the process that they descend from in their environment.

#ifndef MINIRAY_RUNTIME_WORKER_PROCESS_SCAN_H_
#define MINIRAY_RUNTIME_WORKER_PROCESS_SCAN_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace miniray {

// The environment variable with the mark, "DAEMON/KEY".
inline constexpr char kMarkVariable[] = "MINIRAY_PROCESS";

// The children of this process, those that were reparented to it included;
// zombies too.
std::vector<pid_t> OwnChildren();

// The mark of a process; empty: none, or no such process.
std::string MarkOfProcess(pid_t pid);

// The processes whose mark begins with `prefix`; with `whole`, equals it.
// Guardians are left out, which end by themselves.
std::vector<pid_t> MarkedProcesses(absl::string_view prefix, bool whole);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_PROCESS_SCAN_H_
