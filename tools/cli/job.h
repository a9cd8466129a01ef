// `miniray job list|status|logs|stop`.

#ifndef MINIRAY_TOOLS_CLI_JOB_H_
#define MINIRAY_TOOLS_CLI_JOB_H_

#include "tools/cli/command_line.h"

namespace miniray::cli {

// Returns the exit code.
int RunJob(const CommandLine& line);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_JOB_H_
