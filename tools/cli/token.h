// What it takes to be let into a cluster. The token: --token_file, else
// $MINIRAY_TOKEN. Certificates: --tls_dir, else $MINIRAY_TLS_DIR.

#ifndef MINIRAY_TOOLS_CLI_TOKEN_H_
#define MINIRAY_TOOLS_CLI_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"

namespace miniray::cli {

// Returns an empty string if neither is given. Errors: as of reading the file;
// INVALID_ARGUMENT, what is there cannot be a token.
absl::StatusOr<std::string> GivenToken();

// Returns an empty string if neither is given.
std::string GivenTlsDir();

// Call it before the first channel to the head at `address`: makes this process
// speak TLS if the head does, and returns the head's token. What is not given
// is what this machine's process records know about that head.
// Faults that were asked for (--inject_faults, $MINIRAY_FAULTS) are in force
// from here on.
//
// Errors: those of GivenToken and UseTls.
absl::StatusOr<std::string> PrepareForHead(const std::string& address);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_TOKEN_H_
