// `miniray top`.

#ifndef MINIRAY_TOOLS_CLI_TOP_H_
#define MINIRAY_TOOLS_CLI_TOP_H_

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

// Errors: INVALID_ARGUMENT, a flag has a bad value; found before anything else.
absl::Status CheckTopFlags(const CommandLine& line);

// Returns the exit code.
int RunTop(const CommandLine& line);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_TOP_H_
