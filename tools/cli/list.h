// `miniray list`.

#ifndef MINIRAY_TOOLS_CLI_LIST_H_
#define MINIRAY_TOOLS_CLI_LIST_H_

#include <string>

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

// Errors: INVALID_ARGUMENT, the command line is wrong; found before anything
// else.
absl::Status CheckListFlags(const CommandLine& line, const std::string& table);

absl::Status RunList(const CommandLine& line, const std::string& table);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_LIST_H_
