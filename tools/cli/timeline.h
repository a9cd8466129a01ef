// `miniray timeline`.

#ifndef MINIRAY_TOOLS_CLI_TIMELINE_H_
#define MINIRAY_TOOLS_CLI_TIMELINE_H_

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

absl::Status RunTimeline(const CommandLine& line);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_TIMELINE_H_
