// `miniray submit`.

#ifndef MINIRAY_TOOLS_CLI_SUBMIT_H_
#define MINIRAY_TOOLS_CLI_SUBMIT_H_

#include "tools/cli/command_line.h"
#include "tools/cli/submit_options.h"

namespace miniray::cli {

// Returns the exit code: where it waits, that of the job.
int RunSubmit(const CommandLine& line, SubmitOptions options);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_SUBMIT_H_
