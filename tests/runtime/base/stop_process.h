// Stops a process as Ctrl-Z does.

#ifndef MINIRAY_TESTS_RUNTIME_BASE_STOP_PROCESS_H_
#define MINIRAY_TESTS_RUNTIME_BASE_STOP_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace miniray {

// Whether a SIGSTOP has reached all threads of the process.
inline bool StandsStill(pid_t pid) {
  std::error_code error;
  bool any = false;
  for (const auto& thread : std::filesystem::directory_iterator(
           absl::StrCat("/proc/", pid, "/task"), error)) {
    std::ifstream file(thread.path() / "stat");
    const std::string stat((std::istreambuf_iterator<char>(file)), {});
    // "PID (NAME) STATE ..."
    const size_t name_end = stat.rfind(") ");
    if (name_end == stat.npos || stat.substr(name_end + 2, 1) != "T") {
      return false;
    }
    any = true;
  }
  return any;
}

// Sends SIGSTOP and returns once the process stands still. kill alone returns
// before: until the thread that takes the signal gets a processor, the others
// go on, and may answer.
inline testing::AssertionResult StopProcess(int64_t pid) {
  const auto id = static_cast<pid_t>(pid);
  if (kill(id, SIGSTOP) != 0) {
    return testing::AssertionFailure() << "there is no process " << pid;
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!StandsStill(id)) {
    if (absl::Now() > deadline) {
      return testing::AssertionFailure()
             << "process " << pid << " does not stop";
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  return testing::AssertionSuccess();
}

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_BASE_STOP_PROCESS_H_
