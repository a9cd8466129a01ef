#include "tools/cli/list_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/util/json_util.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

std::string PidText(int64_t pid) { return pid == 0 ? "" : absl::StrCat(pid); }

std::string Labels(const v1::NodeInfo& node) {
  const std::map<std::string, std::string> sorted(node.labels().begin(),
                                                  node.labels().end());
  return absl::StrJoin(sorted, ",", absl::PairFormatter("="));
}

std::vector<Row> NodeRows(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {{"ID", "HOST", "ADDRESS", "PID", "STATE", "CPU",
                            "GPU", "MEMORY", "OTHER", "LABELS", "CAUSE"}};
  for (const v1::NodeInfo& node : state.nodes()) {
    rows.push_back(
        {node.node_id(), node.hostname(), node.address(), PidText(node.pid()),
         StateWord(v1::NodeState_Name(node.state()), "NODE_STATE_"),
         UsedOfTotal(node, "CPU", &Number), UsedOfTotal(node, "GPU", &Number),
         UsedOfTotal(node, "memory", &Bytes), OtherResources(node),
         Labels(node), node.death_cause()});
  }
  return rows;
}

std::vector<Row> ActorRows(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {{"ID", "CLASS", "NAME", "STATE", "JOB", "NODE",
                            "PID", "RESTARTS", "RESOURCES", "CAUSE"}};
  for (const v1::ActorInfo& actor : state.actors()) {
    rows.push_back(
        {actor.actor_id(), actor.class_name(),
         actor.actor_namespace().empty()
             ? actor.name()
             : absl::StrCat(actor.actor_namespace(), "/", actor.name()),
         StateWord(v1::ActorState_Name(actor.state()), "ACTOR_STATE_"),
         actor.job_id(), actor.node_id(), PidText(actor.pid()),
         absl::StrCat(actor.restarts()), Describe(actor.resources()),
         actor.cause()});
  }
  return rows;
}

std::vector<Row> JobRows(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {{"ID", "PROGRAM", "STATE", "EXIT", "NODE", "HOST",
                            "PID", "SUBMITTED", "START", "END", "CAUSE"}};
  for (const v1::JobInfo& job : state.jobs()) {
    rows.push_back({job.job_id(), job.program(), JobStateWord(job),
                    ExitCodeText(job), job.node_id(), job.hostname(),
                    PidText(job.pid()), LocalTime(job.submit_unix_ms()),
                    LocalTime(job.start_unix_ms()),
                    LocalTime(job.end_unix_ms()), job.cause()});
  }
  return rows;
}

std::vector<Row> GroupRows(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {
      {"ID", "NAME", "STRATEGY", "STATE", "BUNDLES", "JOB", "CAUSE"}};
  for (const v1::PlacementGroupInfo& group : state.placement_groups()) {
    std::vector<std::string> bundles;
    for (const v1::BundleInfo& bundle : group.bundles()) {
      bundles.push_back(absl::StrCat(
          Describe(bundle.total()),
          bundle.node_id().empty() ? ""
                                   : absl::StrCat(" on ", bundle.node_id())));
    }
    rows.push_back({group.placement_group_id(), group.name(),
                    StateWord(v1::PlacementStrategy_Name(group.strategy()),
                              "PLACEMENT_STRATEGY_"),
                    StateWord(v1::PlacementGroupState_Name(group.state()),
                              "PLACEMENT_GROUP_STATE_"),
                    absl::StrJoin(bundles, "; "), group.job_id(),
                    group.cause()});
  }
  return rows;
}

std::vector<Row> PackageRows(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {{"ID", "SIZE", "LAST USED"}};
  for (const v1::PackageInfo& package : state.packages()) {
    rows.push_back(
        {package.package_id(),
         absl::StrFormat("%.1fMiB",
                         static_cast<double>(package.size()) / (1 << 20)),
         LocalTime(package.last_used_unix_ms())});
  }
  return rows;
}

// age: what a record's time and id are.
template <class Records, class Age>
void SortBy(Records* records, Age age) {
  std::sort(records->begin(), records->end(),
            [&age](const auto& a, const auto& b) { return age(a) < age(b); });
}

}  // namespace

absl::StatusOr<v1::Table> ParseTable(absl::string_view name) {
  const std::string plain = absl::StrReplaceAll(name, {{"_", "-"}});
  if (plain == "nodes") return v1::TABLE_NODES;
  if (plain == "actors") return v1::TABLE_ACTORS;
  if (plain == "jobs") return v1::TABLE_JOBS;
  if (plain == "placement-groups") return v1::TABLE_PLACEMENT_GROUPS;
  if (plain == "packages") return v1::TABLE_PACKAGES;
  return absl::InvalidArgumentError(absl::StrCat(
      name.empty() ? "say what to list"
                   : absl::StrCat("unknown list '", name, "'"),
      ": nodes, actors, jobs, runs, placement-groups or packages"));
}

absl::StatusOr<std::vector<v1::Filter>> ParseFilters(
    const std::vector<std::string>& filters) {
  std::vector<v1::Filter> parsed;
  for (const std::string& filter : filters) {
    const size_t equals = filter.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--filter=", OneLine(filter),
                       ": expected FIELD=VALUE, e.g. state=alive"));
    }
    v1::Filter item;
    item.set_field(absl::StrReplaceAll(filter.substr(0, equals), {{"-", "_"}}));
    item.set_value(filter.substr(equals + 1));
    parsed.push_back(std::move(item));
  }
  return parsed;
}

std::vector<v1::Filter> ForJobs(const std::vector<v1::Filter>& filters) {
  std::vector<v1::Filter> meant;
  for (const v1::Filter& filter : filters) {
    meant.push_back(filter);
    if (filter.field() != "state") continue;
    const std::string state = absl::AsciiStrToLower(filter.value());
    const bool ended = state == "ended";
    if (!ended && state != "succeeded") continue;
    meant.back().set_value("succeeded");
    v1::Filter& who = meant.emplace_back();
    who.set_field("submitted");
    who.set_value(ended ? "false" : "true");
  }
  return meant;
}

void SortByAge(v1::GetClusterStateResponse* state) {
  using Age = std::pair<int64_t, const std::string&>;
  SortBy(state->mutable_nodes(), [](const v1::NodeInfo& node) {
    return Age(node.start_unix_ms(), node.node_id());
  });
  SortBy(state->mutable_actors(), [](const v1::ActorInfo& actor) {
    return Age(actor.create_unix_ms(), actor.actor_id());
  });
  SortBy(state->mutable_jobs(), [](const v1::JobInfo& job) {
    return Age(
        job.start_unix_ms() != 0 ? job.start_unix_ms() : job.submit_unix_ms(),
        job.job_id());
  });
  SortBy(state->mutable_placement_groups(),
         [](const v1::PlacementGroupInfo& group) {
           return Age(group.create_unix_ms(), group.placement_group_id());
         });
}

std::string FormatList(v1::Table table,
                       const v1::GetClusterStateResponse& state) {
  switch (table) {
    case v1::TABLE_NODES:
      return FormatColumns(NodeRows(state));
    case v1::TABLE_ACTORS:
      return FormatColumns(ActorRows(state));
    case v1::TABLE_JOBS:
      return FormatColumns(JobRows(state));
    case v1::TABLE_PLACEMENT_GROUPS:
      return FormatColumns(GroupRows(state));
    case v1::TABLE_PACKAGES:
      return FormatColumns(PackageRows(state));
    default:
      return "";
  }
}

absl::StatusOr<std::string> ListToJson(
    v1::Table table, const v1::GetClusterStateResponse& state) {
  switch (table) {
    case v1::TABLE_NODES:
      return RecordsToJson(state.nodes());
    case v1::TABLE_ACTORS:
      return RecordsToJson(state.actors());
    case v1::TABLE_JOBS:
      return RecordsToJson(state.jobs());
    case v1::TABLE_PLACEMENT_GROUPS:
      return RecordsToJson(state.placement_groups());
    case v1::TABLE_PACKAGES:
      return RecordsToJson(state.packages());
    default:
      return absl::InvalidArgumentError("not a table");
  }
}

absl::StatusOr<std::string> RecordToJson(
    const google::protobuf::Message& record) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(record, &json, options);
  if (status.ok()) return json;
  return absl::InternalError(
      absl::StrCat("as JSON: ", std::string(status.message())));
}

}  // namespace miniray::cli
