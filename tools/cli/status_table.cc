#include "tools/cli/status_table.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

std::string NodesTable(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {{"ID", "HOST", "ADDRESS", "STATE", "CPU", "GPU",
                            "MEMORY", "OTHER", "CAUSE"}};
  for (const v1::NodeInfo& node : state.nodes()) {
    rows.push_back({node.node_id(), node.hostname(), node.address(),
                    StateWord(v1::NodeState_Name(node.state()), "NODE_STATE_"),
                    UsedOfTotal(node, "CPU", &Number),
                    UsedOfTotal(node, "GPU", &Number),
                    UsedOfTotal(node, "memory", &Bytes), OtherResources(node),
                    node.death_cause()});
  }
  return FormatTable("Nodes", std::move(rows));
}

std::string ActorsTable(const v1::GetClusterStateResponse& state, bool all) {
  std::vector<Row> rows = {
      {"CLASS", "NAME", "STATE", "NODE", "PID", "RESTARTS", "CAUSE"}};
  int dead = 0;
  for (const v1::ActorInfo& actor : state.actors()) {
    if (!all && actor.state() == v1::ACTOR_STATE_DEAD) {
      ++dead;
      continue;
    }
    rows.push_back(
        {actor.class_name(),
         actor.actor_namespace().empty()
             ? actor.name()
             : absl::StrCat(actor.actor_namespace(), "/", actor.name()),
         StateWord(v1::ActorState_Name(actor.state()), "ACTOR_STATE_"),
         actor.node_id(), actor.pid() == 0 ? "" : absl::StrCat(actor.pid()),
         absl::StrCat(actor.restarts()), actor.cause()});
  }
  std::string text = FormatTable("Actors", std::move(rows));
  if (dead > 0) {
    absl::StrAppend(&text, "  and ", dead, " dead: see them with --all\n");
  }
  return text;
}

std::string JobsTable(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {
      {"ID", "PROGRAM", "STATE", "HOST", "PID", "START", "END", "CAUSE"}};
  for (const v1::JobInfo& job : state.jobs()) {
    rows.push_back({job.job_id(), job.program(), JobStateWord(job),
                    job.hostname(),
                    job.pid() == 0 ? "" : absl::StrCat(job.pid()),
                    LocalTime(job.start_unix_ms()),
                    LocalTime(job.end_unix_ms()), job.cause()});
  }
  return FormatTable("Jobs", std::move(rows));
}

// Nothing where there are none.
std::string GroupsTable(const v1::GetClusterStateResponse& state, bool all) {
  std::vector<Row> rows = {
      {"ID", "NAME", "STRATEGY", "STATE", "BUNDLES", "JOB", "CAUSE"}};
  for (const v1::PlacementGroupInfo& group : state.placement_groups()) {
    if (!all && group.state() == v1::PLACEMENT_GROUP_STATE_REMOVED) continue;
    rows.push_back({group.placement_group_id(), group.name(),
                    StateWord(v1::PlacementStrategy_Name(group.strategy()),
                              "PLACEMENT_STRATEGY_"),
                    StateWord(v1::PlacementGroupState_Name(group.state()),
                              "PLACEMENT_GROUP_STATE_"),
                    absl::StrCat(group.bundles_size()), group.job_id(),
                    group.cause()});
  }
  if (rows.size() == 1) return "";
  return "\n" + FormatTable("Placement groups", std::move(rows));
}

}  // namespace

std::string FormatClusterState(const v1::GetClusterStateResponse& state,
                               const std::string& address, bool all) {
  std::string text = absl::StrCat("Head: ", address);
  if (!state.head_version().empty()) {
    absl::StrAppend(&text, " (Mini-Ray ", OneLine(state.head_version()), ")");
  }
  absl::StrAppend(&text, "\n\n", NodesTable(state), "\n",
                  ActorsTable(state, all), "\n", JobsTable(state),
                  GroupsTable(state, all));
  return text;
}

}  // namespace miniray::cli
