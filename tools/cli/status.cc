#include "tools/cli/status.h"

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"
#include "runtime/base/net.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "runtime/dashboard/state_json.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/status_table.h"
#include "tools/cli/token.h"

namespace miniray::cli {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

absl::StatusOr<std::string> FindAddress() {
  if (std::string address = absl::GetFlag(FLAGS_address); !address.empty()) {
    return address;
  }
  if (const char* address = std::getenv("MINIRAY_ADDRESS");
      address != nullptr && *address != '\0') {
    MR_RETURN_IF_ERROR(
        Annotate(ParseHostPort(address).status(), "$MINIRAY_ADDRESS"));
    return std::string(address);
  }
  if (std::optional<std::string> address = MostRecentHeadAddress()) {
    return *std::move(address);
  }
  return absl::FailedPreconditionError(
      "no cluster is known on this machine; start one with: miniray start "
      "--head, or pass --address HOST:PORT of another machine's head");
}

}  // namespace

absl::Status CheckStatusFlags(const CommandLine& line) {
  if (line.Has("address")) {
    MR_RETURN_IF_ERROR(Annotate(
        ParseHostPort(absl::GetFlag(FLAGS_address)).status(), "--address"));
  }
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "table" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format=", format, ": expected table or json"));
  }
  return absl::OkStatus();
}

absl::Status RunStatus(const CommandLine& line) {
  MR_ASSIGN_OR_RETURN(const std::string address, FindAddress());
  MR_ASSIGN_OR_RETURN(const std::string token, PrepareForHead(address));
  MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                      FetchClusterState(address, token, kTimeout));
  if (absl::GetFlag(FLAGS_format) == "json") {
    MR_ASSIGN_OR_RETURN(const std::string json,
                        ClusterStateToJson(state, JsonStyle::kIndented));
    std::cout << json;
  } else {
    std::cout << FormatClusterState(state, address);
  }
  return absl::OkStatus();
}

}  // namespace miniray::cli
