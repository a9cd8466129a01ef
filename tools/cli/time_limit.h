// --timeout, which every verb that can wait takes.

#ifndef MINIRAY_TOOLS_CLI_TIME_LIMIT_H_
#define MINIRAY_TOOLS_CLI_TIME_LIMIT_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

// Errors: INVALID_ARGUMENT, --timeout is given and no time to wait.
absl::Status CheckTimeoutFlag(const CommandLine& line);

// --timeout, or what the verb does without it.
absl::Duration TimeLimit(const CommandLine& line, absl::Duration otherwise);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_TIME_LIMIT_H_
