#include "runtime/dashboard/state_json.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

namespace miniray {

absl::StatusOr<std::string> MessageToJson(
    const google::protobuf::Message& message, JsonStyle style) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = style == JsonStyle::kIndented;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) {
    return absl::InternalError(absl::StrCat(
        message.GetTypeName(), " as JSON: ", std::string(status.message())));
  }
  return json;
}

absl::StatusOr<std::string> ClusterStateToJson(
    const v1::GetClusterStateResponse& state, JsonStyle style) {
  return MessageToJson(state, style);
}

}  // namespace miniray
