// A head or a worker daemon in this process (`miniray start --block`).

#ifndef MINIRAY_TOOLS_CLI_FOREGROUND_H_
#define MINIRAY_TOOLS_CLI_FOREGROUND_H_

#include "absl/status/status.h"
#include "tools/cli/command_line.h"
#include "tools/cli/start_options.h"

namespace miniray::cli {

// Runs until it is told to stop (StopEvents). The failure to start is also told
// to --ready_fd.
absl::Status RunForeground(const CommandLine& line,
                           const StartOptions& options);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_FOREGROUND_H_
