// The part of ClusterState that decides which actor runs where.

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

// A node is filled up to this share before the next one is used, so that small
// jobs stay together; beyond it load is spread.
constexpr double kPackUntil = 0.5;

}  // namespace

ClusterState::Node* ClusterState::PickNode(const ResourceSet& request) {
  Node* best = nullptr;
  double best_score = 0;
  for (auto& [id, node] : nodes_) {
    if (node.info.state() != v1::NODE_STATE_ALIVE || node.link == nullptr ||
        !node.available.Covers(request)) {
      continue;
    }
    ResourceSet after = node.available;
    after.Subtract(request);
    const double used = after.Utilisation(node.total, request);
    // Below the threshold the fuller node wins, above it the emptier one.
    const double score = used <= kPackUntil ? -used : 1 + used;
    if (best == nullptr || score < best_score) {
      best = &node;
      best_score = score;
    }
  }
  return best;
}

bool ClusterState::Feasible(const ResourceSet& request) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& item) {
    return item.second.info.state() != v1::NODE_STATE_DEAD &&
           item.second.total.Covers(request);
  });
}

std::string ClusterState::DescribeNodes() const {
  std::vector<std::string> parts;
  for (const auto& [id, node] : nodes_) {
    if (node.info.state() == v1::NODE_STATE_DEAD) continue;
    parts.push_back(absl::StrCat(node.info.hostname(), " (", id, ") has ",
                                 node.total.ToString()));
  }
  if (parts.empty()) return "the cluster has no nodes";
  return absl::StrJoin(parts, "; ");
}

void ClusterState::TakeResources(Actor* actor, Node* node) {
  node->available.Subtract(actor->request);
  node->actors.insert(actor->info.actor_id());
  actor->holds_resources = true;
  actor->info.set_node_id(node->info.node_id());
  actor->info.set_hostname(node->info.hostname());
  actor->log_node_id = node->info.node_id();
  if (!actor->info.detached()) {
    job_processes_[actor->info.job_id()].insert(actor->info.actor_id());
  }
}

void ClusterState::ReleaseResources(Actor* actor) {
  if (!actor->holds_resources) return;
  actor->holds_resources = false;
  Dirty(actor);
  if (const auto it = job_processes_.find(actor->info.job_id());
      it != job_processes_.end() &&
      it->second.erase(actor->info.actor_id()) > 0 && it->second.empty()) {
    job_processes_.erase(it);
    const auto job = jobs_.find(actor->info.job_id());
    if (job != jobs_.end() &&
        job->second.leaving_end != absl::InfiniteFuture()) {
      EndDriverLink(&job->second);
    }
  }
  const auto node = nodes_.find(actor->info.node_id());
  if (node == nodes_.end()) return;
  node->second.available.Add(actor->request);
  node->second.actors.erase(actor->info.actor_id());
}

void ClusterState::Schedule() {
  ScheduleJobs();
  std::deque<std::string> waiting;
  waiting.swap(queue_);
  for (const std::string& id : waiting) {
    Actor* actor = FindActor(id);
    if (actor == nullptr || !IsLive(actor->info)) continue;
    Node* node = PickNode(actor->request);
    if (node == nullptr) {
      queue_.push_back(id);
      const bool feasible = Feasible(actor->request);
      if (feasible) {
        actor->infeasible_since = absl::InfiniteFuture();
      } else if (actor->infeasible_since == absl::InfiniteFuture()) {
        actor->infeasible_since = options_.clock();
      }
      if (actor->info.state() == v1::ACTOR_STATE_PENDING) {
        actor->info.set_cause(absl::StrCat(
            "waits for ", actor->request.ToString(),
            feasible ? ": all of it is in use" : ": no node has that much"));
      }
      continue;
    }
    actor->infeasible_since = absl::InfiniteFuture();
    TakeResources(actor, node);
    if (actor->info.state() == v1::ACTOR_STATE_PENDING) {
      actor->info.set_state(v1::ACTOR_STATE_STARTING);
      actor->info.clear_cause();
    }
    Touch(actor);
    SendStart(*actor);
  }
}

}  // namespace miniray
