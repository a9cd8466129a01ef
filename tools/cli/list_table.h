// `miniray list`: one table, for people or as JSON.

#ifndef MINIRAY_TOOLS_CLI_LIST_TABLE_H_
#define MINIRAY_TOOLS_CLI_LIST_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/head.pb.h"

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

// The table as a JSON array of its records, with the field names of
// proto/cluster.proto; every plain field is present. As always in protobuf's
// JSON, 64-bit integers are strings.
absl::StatusOr<std::string> ListToJson(
    v1::Table table, const v1::GetClusterStateResponse& state);

// One record as JSON.
absl::StatusOr<std::string> RecordToJson(
    const google::protobuf::Message& record);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_LIST_TABLE_H_
