// The verbs of `miniray`: their help and which flags they take.

#ifndef MINIRAY_TOOLS_CLI_VERBS_H_
#define MINIRAY_TOOLS_CLI_VERBS_H_

#include <string>
#include <vector>

#include "tools/cli/command_line.h"

namespace miniray::cli {

const std::vector<Verb>& Verbs();

// What `miniray help` prints.
std::string GeneralHelp();

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_VERBS_H_
