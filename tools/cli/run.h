// `miniray run` and `miniray list runs`.

#ifndef MINIRAY_TOOLS_CLI_RUN_H_
#define MINIRAY_TOOLS_CLI_RUN_H_

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

// Returns the exit code.
int RunRun(const CommandLine& line);

// Errors: INVALID_ARGUMENT, the command line is wrong; found before anything
// else.
absl::Status CheckListRunsFlags(const CommandLine& line);

absl::Status ListRuns(const CommandLine& line);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_RUN_H_
