// Where the bundles of a placement group go.

#ifndef MINIRAY_RUNTIME_HEAD_PLACEMENT_PLANNER_H_
#define MINIRAY_RUNTIME_HEAD_PLACEMENT_PLANNER_H_

#include <optional>
#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "runtime/head/resources.h"

namespace miniray {

struct PlanNode {
  std::string node_id;
  ResourceSet available;
  ResourceSet total;
  int bundles = 0;  // Of the same group that are there already.
};

// Returns the node of each bundle, or nothing if they do not all fit. The two
// strict strategies and small cases are exact; a large PACK or SPREAD that fits
// only in a very particular way may be missed.
//
// REQUIRES: with STRICT_PACK, no bundle of the group is placed yet.
std::optional<std::vector<std::string>> PlanBundles(
    v1::PlacementStrategy strategy, std::vector<PlanNode> nodes,
    const std::vector<ResourceSet>& bundles);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_PLACEMENT_PLANNER_H_
