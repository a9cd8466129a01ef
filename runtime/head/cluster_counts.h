// The head's tables in numbers: what is asked for often, and must not cost what
// the tables do.

#ifndef MINIRAY_RUNTIME_HEAD_CLUSTER_COUNTS_H_
#define MINIRAY_RUNTIME_HEAD_CLUSTER_COUNTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/cluster.pb.h"

namespace miniray {

struct ClusterCounts {
  // By state; those that none is in may be missing. Of what has ended, the
  // tables keep the last ones only.
  std::map<v1::NodeState, int64_t> nodes;
  std::map<v1::ActorState, int64_t> actors;
  std::map<v1::JobState, int64_t> jobs;
  std::map<v1::PlacementGroupState, int64_t> groups;

  // By name, over all nodes that are ALIVE.
  std::map<std::string, double> resources;
  std::map<std::string, double> available;

  // Since this head began.
  int64_t actor_restarts = 0;
  int64_t nodes_lost = 0;  // Those that left in good order do not count.

  // Of nodes that are not dead.
  struct MetricsAddress {
    std::string node_id;
    std::string hostname;
    std::string address;  // HOST:PORT
  };
  std::vector<MetricsAddress> metrics_addresses;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_CLUSTER_COUNTS_H_
