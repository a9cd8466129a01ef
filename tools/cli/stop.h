// `miniray stop`.

#ifndef MINIRAY_TOOLS_CLI_STOP_H_
#define MINIRAY_TOOLS_CLI_STOP_H_

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

absl::Status RunStop(const CommandLine& line);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_STOP_H_
