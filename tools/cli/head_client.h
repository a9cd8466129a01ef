// Questions to a head.

#ifndef MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_
#define MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"

namespace miniray::cli {

// Errors: UNAVAILABLE, nobody answers there within `timeout`. UNAUTHENTICATED,
// the token is wrong or missing. All say what to do.
absl::StatusOr<v1::GetClusterStateResponse> FetchClusterState(
    const std::string& address, const std::string& token,
    absl::Duration timeout);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_
