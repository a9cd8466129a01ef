#include "tools/cli/status.h"

#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/head.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/dashboard/state_json.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/list_table.h"
#include "tools/cli/status_table.h"

namespace miniray::cli {

absl::Status CheckStatusFlags(const CommandLine& line) {
  MR_RETURN_IF_ERROR(CheckHeadFlags(line));
  return CheckFormatFlag();
}

absl::Status RunStatus(const CommandLine& line) {
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  v1::GetClusterStateResponse state;
  MR_RETURN_IF_ERROR(head->Call(&v1::Head::Stub::GetClusterState,
                                v1::GetClusterStateRequest(), &state,
                                TimeLimit(line, kQuestionTimeout)));
  SortByAge(&state);
  if (absl::GetFlag(FLAGS_format) == "json") {
    MR_ASSIGN_OR_RETURN(const std::string json,
                        ClusterStateToJson(state, JsonStyle::kIndented));
    std::cout << json;
  } else {
    std::cout << FormatClusterState(state, head->address(),
                                    absl::GetFlag(FLAGS_all));
  }
  return absl::OkStatus();
}

}  // namespace miniray::cli
