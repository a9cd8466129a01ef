// The part of ClusterState that decides which actor runs where.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

// Beyond it, demands for which nobody waits are forgotten.
constexpr size_t kMaxDemands = 256;
// Beyond it, rankings start anew.
constexpr size_t kMaxNodeChanges = 4096;
// Named in a message.
constexpr size_t kMaxDescribedNodes = 8;

}  // namespace

bool ClusterState::IsUsable(const Node& node) {
  return node.info.state() == v1::NODE_STATE_ALIVE && node.link != nullptr &&
         !node.stopping;
}

// --- Nodes.

ClusterState::Node* ClusterState::PickNode(const ResourceSet& request) {
  Node* best = nullptr;
  double best_score = 0;
  for (auto& [id, node] : nodes_) {
    if (!IsUsable(node) || node.held) continue;
    const std::optional<double> score =
        PlacementScore(request, node.available, node.total);
    if (!score.has_value() || (best != nullptr && *score >= best_score)) {
      continue;
    }
    best = &node;
    best_score = *score;
  }
  return best;
}

std::optional<double> ClusterState::Score(const Demand& demand,
                                          const Node& node) {
  if (!IsUsable(node) || node.held || !demand.LabelsMatch(node.info))
    return std::nullopt;
  return PlacementScore(demand.request, node.available, node.total);
}

ClusterState::Node* ClusterState::PickNode(DemandClass* demands) {
  const Demand& demand = demands->demand;
  if (!demand.node_id.empty()) {
    const auto it = nodes_.find(demand.node_id);
    if (it != nodes_.end() && CouldHold(demand, it->second)) {
      return Score(demand, it->second).has_value() ? &it->second : nullptr;
    }
    if (!demand.soft) return nullptr;
  }
  if (demands->ranked_changes < node_changes_begin_) {
    demands->ranking.Clear();
    for (const auto& [id, node] : nodes_) {
      demands->ranking.Update(id, Score(demand, node));
    }
  } else {
    for (auto i =
             static_cast<size_t>(demands->ranked_changes - node_changes_begin_);
         i < node_changes_.size(); ++i) {
      const auto node = nodes_.find(node_changes_[i]);
      demands->ranking.Update(
          node_changes_[i],
          node == nodes_.end() ? std::nullopt : Score(demand, node->second));
    }
  }
  demands->ranked_changes =
      node_changes_begin_ + static_cast<int64_t>(node_changes_.size());
  const std::string* const best = demands->ranking.Best();
  return best == nullptr ? nullptr : &nodes_.find(*best)->second;
}

bool ClusterState::CouldHold(const Demand& demand, const Node& node) {
  return node.info.state() != v1::NODE_STATE_DEAD &&
         demand.LabelsMatch(node.info) && node.total.Covers(demand.request);
}

bool ClusterState::Feasible(const Demand& demand) const {
  if (!demand.group_id.empty()) return GroupFeasible(demand);
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& item) {
    return (demand.node_id.empty() || demand.soft ||
            demand.node_id == item.first) &&
           CouldHold(demand, item.second);
  });
}

std::string ClusterState::DescribeNodes() const {
  std::vector<std::string> parts;
  size_t others = 0;
  for (const auto& [id, node] : nodes_) {
    if (node.info.state() == v1::NODE_STATE_DEAD) continue;
    if (parts.size() == kMaxDescribedNodes) {
      ++others;
      continue;
    }
    parts.push_back(absl::StrCat(node.info.hostname(), " (", id, ") has ",
                                 node.total.ToString()));
    if (node.info.labels().empty()) continue;
    const std::map<std::string, std::string> labels(node.info.labels().begin(),
                                                    node.info.labels().end());
    absl::StrAppend(&parts.back(), ", labels ",
                    absl::StrJoin(labels, " ", absl::PairFormatter("=")));
  }
  if (parts.empty()) return "the cluster has no nodes";
  if (others > 0) parts.push_back(absl::StrCat("and ", others, " more nodes"));
  return absl::StrJoin(parts, "; ");
}

ResourceSet ClusterState::Take(Node* node, const ResourceSet& request) {
  ResourceSet taken = node->available.Take(request);
  NodeChanged(*node, /*gained=*/false);
  return taken;
}

void ClusterState::Give(Node* node, const ResourceSet& amount) {
  node->available.Add(amount);
  NodeChanged(*node, /*gained=*/true);
}

void ClusterState::NodeChanged(const Node& node, bool gained) {
  node_changes_.push_back(node.info.node_id());
  if (node_changes_.size() > kMaxNodeChanges) {
    node_changes_begin_ += static_cast<int64_t>(node_changes_.size());
    node_changes_.clear();
  }
  if (!gained) return;
  try_groups_ = true;
  ++capacity_epoch_;
  for (DemandClass* demands :
       std::vector<DemandClass*>(blocked_.begin(), blocked_.end())) {
    if (demands->demand.group_id.empty() &&
        Score(demands->demand, node).has_value()) {
      MakeReady(demands);
    }
  }
}

// --- Who waits.

absl::Status ClusterState::CheckRoomToWait(int64_t waiting,
                                           absl::string_view what) const {
  if (waiting < options_.max_waiting) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      waiting, " ", what,
      " wait for room in the cluster already, which is the head's limit "
      "(miniray start --head --max_waiting): see miniray status for what they "
      "wait for, and create more when some have started"));
}

void ClusterState::Enqueue(Actor* actor) {
  const Demand demand = Demand::Of(*actor->spec, actor->request);
  const std::string key = demand.Key();
  auto it = demands_.find(key);
  if (it == demands_.end()) {
    if (demands_.size() > kMaxDemands) {
      std::erase_if(demands_, [](const auto& item) {
        return item.second->waiting.empty();
      });
    }
    it = demands_.emplace(key, std::make_unique<DemandClass>()).first;
    it->second->demand = demand;
  }
  DemandClass* const demands = it->second.get();
  actor->queue_position = next_queue_position_++;
  actor->queued_at = options_.clock();
  actor->waits_in = demands;
  const bool first = demands->waiting.empty();
  demands->waiting.emplace(actor->queue_position, actor->info.actor_id());
  ++waiting_actors_;
  // Behind others, it waits as they do.
  if (first) MakeReady(demands);
}

void ClusterState::Dequeue(Actor* actor) {
  if (actor->restart_at != absl::InfinitePast()) {
    delayed_.erase({actor->restart_at, actor->info.actor_id()});
    actor->restart_at = absl::InfinitePast();
  }
  DemandClass* const demands = std::exchange(actor->waits_in, nullptr);
  if (demands == nullptr) return;
  const bool ready = demands->ready;
  if (ready) ready_.erase({demands->waiting.begin()->first, demands});
  demands->waiting.erase(actor->queue_position);
  --waiting_actors_;
  demands->ready = false;
  if (demands->waiting.empty()) {
    blocked_.erase(demands);
    demands->infeasible_since = absl::InfiniteFuture();
  } else if (ready) {
    demands->ready = true;
    ready_.emplace(demands->waiting.begin()->first, demands);
  }
}

void ClusterState::MakeReady(DemandClass* demands) {
  if (demands->ready || demands->waiting.empty()) return;
  blocked_.erase(demands);
  demands->ready = true;
  ready_.emplace(demands->waiting.begin()->first, demands);
}

void ClusterState::Block(DemandClass* demands) {
  if (demands->ready) {
    ready_.erase({demands->waiting.begin()->first, demands});
    demands->ready = false;
  }
  blocked_.insert(demands);
  CheckFeasible(demands);
}

void ClusterState::CheckFeasible(DemandClass* demands) {
  demands->feasible = Feasible(demands->demand);
  if (demands->feasible) {
    demands->infeasible_since = absl::InfiniteFuture();
  } else if (demands->infeasible_since == absl::InfiniteFuture()) {
    demands->infeasible_since = options_.clock();
  }
}

absl::string_view ClusterState::NoNodeReason(const Demand& demand) const {
  if (std::none_of(nodes_.begin(), nodes_.end(), [](const auto& item) {
        return item.second.info.state() != v1::NODE_STATE_DEAD;
      })) {
    return "no node is alive";
  }
  return demand.request.empty() ? "there is none" : "no node has that much";
}

std::string ClusterState::WaitReason(const DemandClass& demands) const {
  const Demand& demand = demands.demand;
  std::string text = absl::StrCat("waits for ", demand.ToString());
  if (!demand.group_id.empty()) {
    const auto group = groups_.find(demand.group_id);
    if (group != groups_.end() &&
        group->second.info.state() != v1::PLACEMENT_GROUP_STATE_CREATED) {
      return absl::StrCat(text, ", which ", group->second.info.cause());
    }
  }
  if (!demands.feasible) return absl::StrCat(text, ": ", NoNodeReason(demand));
  if (const auto node = nodes_.find(demand.node_id);
      node != nodes_.end() && !IsUsable(node->second) &&
      node->second.info.state() != v1::NODE_STATE_DEAD) {
    return absl::StrCat(text, ": it is cut from the head");
  }
  return absl::StrCat(text, ": ", WhyNoRoom(demand));
}

std::string ClusterState::WhyNoRoom(const Demand& demand) const {
  bool reachable = false;
  bool in_parts = false;  // There is as much, on too many GPUs.
  if (const auto group = groups_.find(demand.group_id);
      group != groups_.end()) {
    const std::vector<Bundle>& bundles = group->second.bundles;
    for (int i = 0; i < static_cast<int>(bundles.size()); ++i) {
      if (demand.bundle_index >= 0 && demand.bundle_index != i) continue;
      const auto node = nodes_.find(bundles[i].node_id);
      if (node == nodes_.end() || !IsUsable(node->second) ||
          !bundles[i].total.Covers(demand.request)) {
        continue;
      }
      reachable = true;
      in_parts = in_parts || (bundles[i].available.CoversSums(demand.request) &&
                              !bundles[i].available.Covers(demand.request));
    }
  } else {
    for (const auto& [id, node] : nodes_) {
      if (!IsUsable(node) || !CouldHold(demand, node)) continue;
      reachable = true;
      in_parts = in_parts || (node.available.CoversSums(demand.request) &&
                              !node.available.Covers(demand.request));
    }
  }
  if (demand.request.empty()) {
    // There is room for that on every node that may be used.
    return reachable ? "it is kept free for a placement group"
                     : "every such node is cut from the head";
  }
  if (in_parts) {
    return "what is free of the GPUs is spread over several of them";
  }
  return reachable ? "all of it is in use"
                   : "the nodes that have that much are cut from the head";
}

v1::ActorInfo ClusterState::Told(const Actor& actor) const {
  v1::ActorInfo info = actor.info;
  if (IsToldAsKept(actor)) return info;
  if (actor.restart_at != absl::InfinitePast()) {
    info.set_cause(absl::StrCat(
        info.cause(), "; it ended ", actor.quick_restarts,
        " times in a row within a minute of its start: it is started again in ",
        absl::FormatDuration(absl::Ceil(
            std::max(actor.restart_at - options_.clock(), absl::ZeroDuration()),
            absl::Milliseconds(100)))));
  }
  if (actor.waits_in == nullptr) return info;
  const std::string reason = WaitReason(*actor.waits_in);
  info.set_cause(info.cause().empty()
                     ? reason
                     : absl::StrCat(info.cause(), "; now it ", reason));
  return info;
}

void ClusterState::FailInfeasible(absl::Time now) {
  for (DemandClass* demands :
       std::vector<DemandClass*>(blocked_.begin(), blocked_.end())) {
    if (now < demands->infeasible_since + options_.infeasible_timeout) continue;
    // Those that came later have waited for less.
    while (!demands->waiting.empty()) {
      Actor* const actor = FindActor(demands->waiting.begin()->second);
      if (now < actor->queued_at + options_.infeasible_timeout) break;
      MarkDead(actor, demands->demand.group_id.empty()
                          ? absl::StrCat("cannot be placed: it asks for ",
                                         demands->demand.ToString(), ", but ",
                                         DescribeNodes())
                          : absl::StrCat("cannot be placed: it ",
                                         WaitReason(*demands)));
    }
  }
}

// --- Placement.

void ClusterState::ReleaseResources(Actor* actor) {
  if (!actor->holds_resources) return;
  actor->holds_resources = false;
  Dirty(actor);
  const auto it = nodes_.find(actor->info.node_id());
  Node* const node = it == nodes_.end() ? nullptr : &it->second;
  if (node != nullptr) node->actors.erase(actor->info.actor_id());
  if (!ReleaseBundle(actor) && node != nullptr) Give(node, actor->taken);
  actor->info.clear_gpus();
  const auto processes = job_processes_.find(actor->info.job_id());
  if (processes == job_processes_.end() ||
      processes->second.erase(actor->info.actor_id()) == 0 ||
      !processes->second.empty()) {
    return;
  }
  job_processes_.erase(processes);
  const auto job = jobs_.find(actor->info.job_id());
  if (job != jobs_.end() && job->second.leaving_end != absl::InfiniteFuture()) {
    EndDriverLink(&job->second);
  }
}

bool ClusterState::Place(DemandClass* demands) {
  Actor* const actor = FindActor(demands->waiting.begin()->second);
  Node* node = nullptr;
  if (demands->demand.group_id.empty()) {
    node = PickNode(demands);
    if (node == nullptr) return false;
    actor->taken = Take(node, actor->request);
  } else {
    node = TakeBundle(demands->demand, actor);
    if (node == nullptr) return false;
  }
  Dequeue(actor);
  node->actors.insert(actor->info.actor_id());
  actor->holds_resources = true;
  for (const int gpu : actor->taken.Gpus()) actor->info.add_gpus(gpu);
  actor->info.set_node_id(node->info.node_id());
  actor->info.set_hostname(node->info.hostname());
  actor->log_node_id = node->info.node_id();
  if (!actor->info.detached()) {
    job_processes_[actor->info.job_id()].insert(actor->info.actor_id());
  }
  if (actor->info.state() == v1::ACTOR_STATE_PENDING) {
    actor->info.set_state(v1::ACTOR_STATE_STARTING);
    actor->info.clear_cause();
  }
  Touch(actor);
  SendStart(*actor);
  return true;
}

void ClusterState::Schedule() {
  ScheduleGroups();
  // Jobs are looked at again where there is more room than before, or where
  // there may never be any.
  if (scheduled_epoch_ != capacity_epoch_ || feasible_epoch_ != node_epoch_ ||
      scheduled_jobs_ != job_queue_.size()) {
    ScheduleJobs();
  }
  scheduled_epoch_ = capacity_epoch_;
  scheduled_jobs_ = job_queue_.size();
  while (!ready_.empty()) {
    DemandClass* const demands = ready_.begin()->second;
    if (!Place(demands)) Block(demands);
  }
  if (feasible_epoch_ == node_epoch_) return;
  feasible_epoch_ = node_epoch_;
  for (DemandClass* demands : blocked_) CheckFeasible(demands);
}

}  // namespace miniray
