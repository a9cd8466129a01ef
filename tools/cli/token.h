// Where the cluster's token comes from: --token_file, else $MINIRAY_TOKEN.

#ifndef MINIRAY_TOOLS_CLI_TOKEN_H_
#define MINIRAY_TOOLS_CLI_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"

namespace miniray::cli {

// Returns an empty string if neither is given. Errors: as of reading the file;
// INVALID_ARGUMENT, what is there cannot be a token.
absl::StatusOr<std::string> GivenToken();

// As GivenToken; where none is given, what this machine's process records know
// about the head at `address`.
absl::StatusOr<std::string> TokenForHead(const std::string& address);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_TOKEN_H_
