// `miniray start` without --block: processes in the background.

#ifndef MINIRAY_TOOLS_CLI_LAUNCH_H_
#define MINIRAY_TOOLS_CLI_LAUNCH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/cli/child.h"
#include "tools/cli/command_line.h"
#include "tools/cli/ready.h"
#include "tools/cli/start_options.h"
#include "tools/cli/stop_events.h"

namespace miniray::cli {

struct LaunchedDaemon {
  Child child;
  ReadyMessage message;
};

// Starts a worker daemon with the flags in `line` that concern one and waits
// until it has joined the head at `address`. On failure no process is left.
// Errors: DEADLINE_EXCEEDED, not within `timeout`.
absl::StatusOr<LaunchedDaemon> LaunchDaemon(const CommandLine& line,
                                            const std::string& address,
                                            Child::Mode mode,
                                            const StopEvents& stop,
                                            absl::Duration timeout);

// Starts what `options` ask for, waits until all of it is ready and tells the
// user. On failure no process is left.
absl::Status LaunchInBackground(const CommandLine& line,
                                const StartOptions& options);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_LAUNCH_H_
