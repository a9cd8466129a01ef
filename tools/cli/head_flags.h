// How a head was tuned, for the next one that goes on with its cluster: a lease
// that was left out must not be another than its nodes had.

#ifndef MINIRAY_TOOLS_CLI_HEAD_FLAGS_H_
#define MINIRAY_TOOLS_CLI_HEAD_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

// Both are about those flags of a head that nobody looks for it by: lease,
// grace, limits, the dashboard's port.

// Writes those that are not the default into the state folder `folder`. Errors:
// those of the file system.
absl::Status RememberHeadFlags(const std::string& folder);

// Sets those that were remembered there and that `line` does not give. Errors:
// DATA_LOSS, what is there is not such a list.
absl::Status RecallHeadFlags(const CommandLine& line,
                             const std::string& folder);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_HEAD_FLAGS_H_
