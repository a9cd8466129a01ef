// The part of ClusterState that counts its tables.

#include "runtime/head/cluster_counts.h"

#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

void Add(const v1::Resources& resources, std::map<std::string, double>* sums) {
  for (const auto& [name, quantity] : resources.quantity()) {
    (*sums)[name] += quantity;
  }
}

}  // namespace

ClusterCounts ClusterState::Counts() const {
  ClusterCounts counts;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, node] : nodes_) {
    ++counts.nodes[node.info.state()];
    if (node.info.state() == v1::NODE_STATE_ALIVE) {
      Add(node.total.ToProto(), &counts.resources);
      Add(node.available.ToProto(), &counts.available);
    }
    if (node.info.state() != v1::NODE_STATE_DEAD &&
        !node.metrics_address.empty()) {
      counts.metrics_addresses.push_back(
          {id, node.info.hostname(), node.metrics_address});
    }
  }
  for (const auto& [id, actor] : actors_) ++counts.actors[actor->info.state()];
  for (const auto& [id, job] : jobs_) ++counts.jobs[job.info.state()];
  for (const auto& [id, group] : groups_) ++counts.groups[group.info.state()];
  counts.actor_restarts = actor_restarts_;
  counts.nodes_lost = nodes_lost_;
  return counts;
}

}  // namespace miniray
