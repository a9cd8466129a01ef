// The cluster's tables, and other messages, as JSON, for `miniray status` and
// the dashboard.

#ifndef MINIRAY_RUNTIME_DASHBOARD_STATE_JSON_H_
#define MINIRAY_RUNTIME_DASHBOARD_STATE_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "proto/head.pb.h"

namespace miniray {

enum class JsonStyle { kCompact, kIndented };

// Returns protobuf's JSON with the field names of the .proto file; every plain
// field is present, also where it is 0 or empty. As always in protobuf's JSON,
// 64-bit integers are strings, and so are NaN, Infinity and -Infinity.
absl::StatusOr<std::string> MessageToJson(
    const google::protobuf::Message& message, JsonStyle style);

absl::StatusOr<std::string> ClusterStateToJson(
    const v1::GetClusterStateResponse& state, JsonStyle style);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_STATE_JSON_H_
