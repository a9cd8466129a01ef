// The help of the verbs that work with jobs, tables and logs.

#ifndef MINIRAY_TOOLS_CLI_JOB_VERBS_H_
#define MINIRAY_TOOLS_CLI_JOB_VERBS_H_

#include <vector>

#include "tools/cli/command_line.h"

namespace miniray::cli {

// submit, job, list, logs, timeline.
std::vector<Verb> JobVerbs();

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_JOB_VERBS_H_
