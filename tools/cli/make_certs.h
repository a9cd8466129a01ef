// miniray make-certs

#ifndef MINIRAY_TOOLS_CLI_MAKE_CERTS_H_
#define MINIRAY_TOOLS_CLI_MAKE_CERTS_H_

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

// Errors: INVALID_ARGUMENT, a message for the user.
absl::Status CheckMakeCertsFlags(const CommandLine& line);

absl::Status RunMakeCerts(const CommandLine& line);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_MAKE_CERTS_H_
