// The part of ClusterState that finds room for placement groups.

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/head/cluster_state.h"
#include "runtime/head/placement_planner.h"

namespace miniray {
namespace {

// How often patience is looked at.
constexpr absl::Duration kLookPeriod = absl::Seconds(1);
// Where many groups wait, they are not tried at each change.
constexpr size_t kManyGroups = 16;
constexpr absl::Duration kTryPeriod = absl::Milliseconds(50);

bool Spreads(const GroupRecord& group) {
  return group.info.strategy() == v1::PLACEMENT_STRATEGY_SPREAD ||
         group.info.strategy() == v1::PLACEMENT_STRATEGY_STRICT_SPREAD;
}

// What is not placed.
std::vector<ResourceSet> Missing(const GroupRecord& group) {
  std::vector<ResourceSet> missing;
  for (const BundleRecord& bundle : group.bundles) {
    if (bundle.node_id.empty()) missing.push_back(bundle.total);
  }
  return missing;
}

ResourceSet Sum(const std::vector<ResourceSet>& bundles) {
  ResourceSet sum;
  for (const ResourceSet& bundle : bundles) sum.Add(bundle);
  return sum;
}

// "2 x (CPU 1), 1 x (GPU 2) on different nodes".
std::string Describe(const GroupRecord& group) {
  std::map<std::string, int> counts;
  for (const ResourceSet& bundle : Missing(group)) ++counts[bundle.ToString()];
  std::vector<std::string> parts;
  for (const auto& [text, count] : counts) {
    parts.push_back(absl::StrCat(count, " x (", text, ")"));
  }
  const v1::PlacementStrategy strategy = group.info.strategy();
  return absl::StrCat(
      absl::StrJoin(parts, ", "),
      strategy == v1::PLACEMENT_STRATEGY_STRICT_PACK     ? " on one node"
      : strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD ? " on different nodes"
                                                         : "");
}

int BundlesOn(const GroupRecord& group, const std::string& node_id) {
  return static_cast<int>(std::count_if(
      group.bundles.begin(), group.bundles.end(),
      [&](const BundleRecord& bundle) { return bundle.node_id == node_id; }));
}

}  // namespace

void ClusterState::ScheduleGroups() {
  const absl::Time now = options_.clock();
  if (!try_groups_ ||
      (group_queue_.size() > kManyGroups && now < next_group_try_)) {
    return;
  }
  try_groups_ = false;
  next_group_try_ = now + kTryPeriod;
  // A copy: those that are placed leave the queue.
  for (const auto& [position, id] : std::map(group_queue_)) {
    Group* group = &groups_.find(id)->second;
    if (PlaceGroup(group)) {
      MakeGroupReady(id);
    } else {
      LetWait(group);
    }
  }
  HoldNodes();
  try_groups_ = false;
}

bool ClusterState::PlaceGroup(Group* group) {
  const std::string& id = group->info.placement_group_id();
  const std::vector<ResourceSet> missing = Missing(*group);
  const ResourceSet sum = Sum(missing);
  std::vector<Node*> nodes;
  std::vector<PlanNode> plan_nodes;
  for (auto& [node_id, node] : nodes_) {
    if (!IsUsable(node) || (node.held && held_for_ != id)) continue;
    const double used = node.available.Utilisation(node.total, sum);
    nodes.push_back(&node);
    plan_nodes.push_back({.available = node.available,
                          .bundles = BundlesOn(*group, node_id),
                          .rank = Spreads(*group) ? used : -used});
  }
  const BundlePlan plan =
      PlanBundles(group->info.strategy(), missing, std::move(plan_nodes));
  if (plan.outcome != BundlePlan::kFits) return false;
  size_t next = 0;
  for (BundleRecord& bundle : group->bundles) {
    if (!bundle.node_id.empty()) continue;
    Node* const node = nodes[plan.node_of[next]];
    bundle.node_id = node->info.node_id();
    bundle.total = plan.taken[next++];
    bundle.available = bundle.total;
    node->available.Subtract(bundle.total);
    NodeChanged(*node, /*gained=*/false);
  }
  group->info.set_state(v1::PLACEMENT_GROUP_STATE_CREATED);
  group->info.clear_cause();
  group->lost_node.clear();
  group->waits_since = absl::InfiniteFuture();
  group->infeasible_since = absl::InfiniteFuture();
  group_queue_.erase(group->queue_position);
  if (held_for_ == id) ReleaseHold();
  LOG(INFO) << "placement group " << id << ": all bundles are reserved";
  Touch(group);
  return true;
}

bool ClusterState::Feasible(const Group& group) const {
  std::vector<PlanNode> nodes;
  for (const auto& [id, node] : nodes_) {
    if (node.info.state() == v1::NODE_STATE_DEAD) continue;
    PlanNode plan_node{.available = node.total,
                       .bundles = BundlesOn(group, id)};
    for (const BundleRecord& bundle : group.bundles) {
      if (bundle.node_id == id) plan_node.available.Subtract(bundle.total);
    }
    nodes.push_back(std::move(plan_node));
  }
  return PlanBundles(group.info.strategy(), Missing(group), std::move(nodes))
             .outcome != BundlePlan::kDoesNotFit;
}

void ClusterState::LetWait(Group* group) {
  const bool feasible = Feasible(*group);
  if (feasible != (group->infeasible_since == absl::InfiniteFuture())) {
    group->infeasible_since =
        feasible ? absl::InfiniteFuture() : options_.clock();
    feasible_epoch_ = -1;  // It matters to its actors.
  }
  const std::string cause = absl::StrCat(
      group->lost_node, "waits for ", Describe(*group),
      feasible ? ": it is in use"
               : absl::StrCat(": no nodes could hold that: ", DescribeNodes()));
  if (cause == group->info.cause()) return;
  group->info.set_cause(cause);
  Touch(group);
}

void ClusterState::HoldNodes() {
  const absl::Time now = options_.clock();
  if (!held_for_.empty()) {
    const bool sound =
        now < hold_end_ &&
        std::none_of(nodes_.begin(), nodes_.end(), [](const auto& item) {
          return item.second.held &&
                 item.second.info.state() == v1::NODE_STATE_DEAD;
        });
    if (sound) return;
    ReleaseHold();
  }
  const auto impatient = std::find_if(
      group_queue_.begin(), group_queue_.end(),
      [&](const auto& item) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        const Group* group = &groups_.find(item.second)->second;
        return now >= group->waits_since + options_.group_patience &&
               group->infeasible_since == absl::InfiniteFuture();
      });
  if (impatient == group_queue_.end()) return;
  const Group& group = groups_.find(impatient->second)->second;
  // As if all actors but those in groups had ended.
  std::map<std::string, ResourceSet> reserved;
  for (const auto& [id, other] : groups_) {
    for (const BundleRecord& bundle : other.bundles) {
      if (!bundle.node_id.empty()) reserved[bundle.node_id].Add(bundle.total);
    }
  }
  const std::vector<ResourceSet> missing = Missing(group);
  const ResourceSet sum = Sum(missing);
  std::vector<Node*> nodes;
  std::vector<PlanNode> plan_nodes;
  for (auto& [id, node] : nodes_) {
    if (node.info.state() != v1::NODE_STATE_ALIVE || node.stopping) continue;
    PlanNode plan_node{.available = node.total,
                       .bundles = BundlesOn(group, id),
                       .rank = node.available.Utilisation(node.total, sum)};
    plan_node.available.Subtract(reserved[id]);
    nodes.push_back(&node);
    plan_nodes.push_back(std::move(plan_node));
  }
  const BundlePlan plan =
      PlanBundles(group.info.strategy(), missing, std::move(plan_nodes));
  if (plan.outcome != BundlePlan::kFits) return;
  for (const size_t i : plan.node_of) {
    nodes[i]->held = true;
    NodeChanged(*nodes[i], /*gained=*/false);
  }
  held_for_ = impatient->second;
  hold_end_ = now + options_.group_hold;
  LOG(INFO) << "placement group " << held_for_ << " has waited for "
            << absl::FormatDuration(now - group.waits_since)
            << ": nodes are held for it";
}

void ClusterState::ReleaseHold() {
  held_for_.clear();
  for (auto& [id, node] : nodes_) {
    if (std::exchange(node.held, false)) NodeChanged(node, /*gained=*/true);
  }
}

void ClusterState::TickGroups(absl::Time now) {
  // A copy: those that are removed leave the queue.
  for (const auto& [position, id] : std::map(group_queue_)) {
    Group* group = &groups_.find(id)->second;
    if (group->info.state() != v1::PLACEMENT_GROUP_STATE_PENDING ||
        now < group->infeasible_since + options_.infeasible_timeout) {
      continue;
    }
    EndGroup(group, absl::StrCat("cannot be placed: it asks for ",
                                 Describe(*group), ", but ", DescribeNodes()));
  }
  if (now >= next_group_try_ + kLookPeriod) try_groups_ = true;
}

bool ClusterState::GroupFeasible(const Demand& demand) const {
  const auto it = groups_.find(demand.group_id);
  if (it == groups_.end()) return false;
  const Group& group = it->second;
  // One that was never placed ends as a whole.
  if (group.info.state() != v1::PLACEMENT_GROUP_STATE_RESCHEDULING ||
      group.infeasible_since == absl::InfiniteFuture()) {
    return true;
  }
  for (size_t i = 0; i < group.bundles.size(); ++i) {
    if (demand.bundle_index >= 0 &&
        static_cast<size_t>(demand.bundle_index) != i) {
      continue;
    }
    if (!group.bundles[i].node_id.empty() &&
        group.bundles[i].total.Covers(demand.request)) {
      return true;
    }
  }
  return false;
}

}  // namespace miniray
