#include "tools/cli/list.h"

#include <iostream>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/list_table.h"
#include "tools/cli/run.h"

namespace miniray::cli {

absl::Status CheckListFlags(const CommandLine& line, const std::string& table) {
  if (table == kRunsTable) return CheckListRunsFlags(line);
  MR_RETURN_IF_ERROR(ParseTable(table).status());
  MR_RETURN_IF_ERROR(ParseFilters(line.Repeated("filter")).status());
  MR_RETURN_IF_ERROR(CheckHeadFlags(line));
  return CheckFormatFlag();
}

absl::Status RunList(const CommandLine& line, const std::string& table_name) {
  if (table_name == kRunsTable) return ListRuns(line);
  MR_ASSIGN_OR_RETURN(const v1::Table table, ParseTable(table_name));
  MR_ASSIGN_OR_RETURN(std::vector<v1::Filter> filters,
                      ParseFilters(line.Repeated("filter")));
  if (table == v1::TABLE_JOBS) filters = ForJobs(filters);
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  v1::GetClusterStateRequest request;
  request.add_tables(table);
  for (const v1::Filter& filter : filters) *request.add_filters() = filter;
  v1::GetClusterStateResponse state;
  MR_RETURN_IF_ERROR(head->Call(&v1::Head::Stub::GetClusterState, request,
                                &state, TimeLimit(line, kQuestionTimeout)));
  SortByAge(&state);
  if (absl::GetFlag(FLAGS_format) == "json") {
    MR_ASSIGN_OR_RETURN(const std::string json, ListToJson(table, state));
    std::cout << json;
  } else {
    std::cout << FormatList(table, state);
  }
  return absl::OkStatus();
}

}  // namespace miniray::cli
