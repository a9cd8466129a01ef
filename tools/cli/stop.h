// `miniray stop`.

#ifndef MINIRAY_TOOLS_CLI_STOP_H_
#define MINIRAY_TOOLS_CLI_STOP_H_

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

// Errors: INVALID_ARGUMENT, --address is wrong.
absl::Status CheckStopFlags(const CommandLine& line);

// Errors: NOT_FOUND, nothing here belongs to the head at --address. INTERNAL, a
// process is still there.
absl::Status RunStop(const CommandLine& line);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_STOP_H_
