// Questions to a head.

#ifndef MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_
#define MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"

namespace miniray::cli {

// Errors: see ExplainHeadFailure.
absl::StatusOr<v1::GetClusterStateResponse> FetchClusterState(
    const std::string& address, const std::string& token,
    absl::Duration timeout);

// Makes of a call's failure a message that says what to do.
absl::Status ExplainHeadFailure(const absl::Status& status,
                                const std::string& address);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_
