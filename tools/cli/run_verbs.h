// The verbs of `miniray` for who watches: their help and which flags they take.

#ifndef MINIRAY_TOOLS_CLI_RUN_VERBS_H_
#define MINIRAY_TOOLS_CLI_RUN_VERBS_H_

#include <vector>

#include "tools/cli/command_line.h"

namespace miniray::cli {

// run, top, timeline.
std::vector<Verb> RunVerbs();

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_RUN_VERBS_H_
