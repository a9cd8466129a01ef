// `miniray list`: one table, for people or as JSON.

#ifndef MINIRAY_TOOLS_CLI_LIST_TABLE_H_
#define MINIRAY_TOOLS_CLI_LIST_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "proto/head.pb.h"
#include "runtime/base/status_macros.h"

namespace miniray::cli {

// A list that is none of the head's tables.
inline constexpr char kRunsTable[] = "runs";

// "nodes", "actors", "jobs", "placement-groups" (or with "_"), "packages".
// Errors: INVALID_ARGUMENT, names those that there are, and "runs".
absl::StatusOr<v1::Table> ParseTable(absl::string_view name);

// From "field=value". Errors: INVALID_ARGUMENT.
absl::StatusOr<std::vector<v1::Filter>> ParseFilters(
    const std::vector<std::string>& filters);

// What `filters` of jobs mean to the head: "state=ended" and "state=succeeded"
// are the same to it, but for who started the job (see JobStateWord).
std::vector<v1::Filter> ForJobs(const std::vector<v1::Filter>& filters);

// Puts the oldest first: nodes and jobs by their start, actors and placement
// groups by their creation, which a restart does not change; jobs that have not
// started by their submission. By id where that is the same.
void SortByAge(v1::GetClusterStateResponse* state);

// The table as columns with a heading.
std::string FormatList(v1::Table table,
                       const v1::GetClusterStateResponse& state);

// One record as JSON, with the field names of its message; every plain field is
// present. As always in protobuf's JSON, 64-bit integers are strings.
absl::StatusOr<std::string> RecordToJson(
    const google::protobuf::Message& record);

// An array of them, a line for each.
template <class Records>
absl::StatusOr<std::string> RecordsToJson(const Records& records) {
  std::string json = "[";
  for (const auto& record : records) {
    MR_ASSIGN_OR_RETURN(const std::string text, RecordToJson(record));
    absl::StrAppend(&json, json.size() > 1 ? ",\n " : "\n ", text);
  }
  absl::StrAppend(&json, json.size() > 1 ? "\n]\n" : "]\n");
  return json;
}

// The table as such an array.
absl::StatusOr<std::string> ListToJson(
    v1::Table table, const v1::GetClusterStateResponse& state);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_LIST_TABLE_H_
