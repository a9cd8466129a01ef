// Which nodes a placement group's bundles go to. Knows nothing of the head's
// tables.

#ifndef MINIRAY_RUNTIME_HEAD_PLACEMENT_PLANNER_H_
#define MINIRAY_RUNTIME_HEAD_PLACEMENT_PLANNER_H_

#include <cstddef>
#include <vector>

#include "proto/cluster.pb.h"
#include "runtime/head/resources.h"

namespace miniray {

struct PlanNode {
  ResourceSet available;
  // Bundles of the same group that are there and stay.
  int bundles = 0;
  // Among nodes that serve the strategy alike the lowest is taken.
  double rank = 0;
};

struct BundlePlan {
  enum Outcome {
    kFits,
    kDoesNotFit,
    // No way was found in a bounded search; there may be one.
    kGaveUp,
  };
  Outcome outcome = kDoesNotFit;
  // For kFits, of each bundle: the node's index, and what is taken there.
  std::vector<size_t> node_of;
  std::vector<ResourceSet> taken;
};

// Strict strategies are exact: if there is a way, it is found. So is whether
// SPREAD can have a node for each bundle and PACK one node for all; otherwise
// nodes are chosen one after the other, and a bounded search goes back on these
// choices if they lead nowhere. Shares of GPUs are put on the devices of a node
// one after the other, the largest first, and no way back is tried.
// Thread-safe.
BundlePlan PlanBundles(v1::PlacementStrategy strategy,
                       const std::vector<ResourceSet>& bundles,
                       std::vector<PlanNode> nodes);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_PLACEMENT_PLANNER_H_
