// Processes of a chaos run. All of them, and all that those start, carry a mark
// in their environment, by which they are found.

#ifndef MINIRAY_TOOLS_HAVOC_PROCESS_H_
#define MINIRAY_TOOLS_HAVOC_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace miniray::havoc {

// The variable with the mark.
inline constexpr char kMarkVariable[] = "MINIRAY_CHAOS_MARK";

// Runs a program to its end. Errors: INTERNAL with what it wrote to stderr.
absl::Status RunCommand(const std::vector<std::string>& argv);

// Starts a program whose output is appended to `log`. It is killed when this
// process ends. `enter` runs in the child before exec; only system calls;
// false: it could not. Call it from the main thread, whose end is this
// process's.
absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv,
                            const std::map<std::string, std::string>& env,
                            const std::string& log,
                            const std::function<bool()>& enter);

// Living processes with the mark, this one left out; zombies do not count.
std::vector<pid_t> MarkedProcesses(const std::string& mark);
bool HasMark(pid_t pid, const std::string& mark);

pid_t ParentOf(pid_t pid);
// As ps shows it: "miniray-tmpl".
std::string ShortName(pid_t pid);
// For messages: pid, name, state and command line.
std::string DescribeProcess(pid_t pid);

// Waits for a child; -1: it has not ended in time. Else its exit code, 128 +
// signal where one ended it.
int WaitForChild(pid_t pid, absl::Duration timeout);

// Waits until `condition` holds; returns whether it does.
bool WaitUntil(absl::Duration timeout, const std::function<bool()>& condition);

}  // namespace miniray::havoc

#endif  // MINIRAY_TOOLS_HAVOC_PROCESS_H_
