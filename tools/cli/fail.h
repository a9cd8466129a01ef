// How a failure is told: one line on stderr, and an exit code.

#ifndef MINIRAY_TOOLS_CLI_FAIL_H_
#define MINIRAY_TOOLS_CLI_FAIL_H_

#include <algorithm>
#include <iostream>
#include <string>

#include "absl/status/status.h"

namespace miniray::cli {

enum ExitCode {
  kDone = 0,
  kFailed = 1,
  kWrongUsage = 2,
  kTimeLimit = 124,  // As of timeout(1).
};

// Returns the exit code.
inline int Fail(const absl::Status& status, int code = kFailed) {
  std::string message(status.message());
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << "miniray: " << message << std::endl;
  return code;
}

// Tells a failure if it is one; returns the exit code.
inline int Finish(const absl::Status& status) {
  if (status.ok()) return kDone;
  return Fail(status, absl::IsDeadlineExceeded(status) ? kTimeLimit : kFailed);
}

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_FAIL_H_
