// What an actor asks of the node that it is to run on, and who waits for the
// same.

#ifndef MINIRAY_RUNTIME_HEAD_DEMAND_H_
#define MINIRAY_RUNTIME_HEAD_DEMAND_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "runtime/head/node_ranking.h"
#include "runtime/head/resources.h"

namespace miniray {

struct Demand {
  ResourceSet request;
  std::string node_id;  // Only there; empty: anywhere.
  bool soft = false;    // Elsewhere if that node is dead or too small.
  std::map<std::string, std::string> labels;
  std::string group_id;   // From one of its bundles; empty: from a node.
  int bundle_index = -1;  // -1: any.

  static Demand Of(const v1::ActorSpec& spec, const ResourceSet& request);

  // The same for equal demands.
  std::string Key() const;
  // "CPU 1 on a node with zone=a"; "a node" where any will do.
  std::string ToString() const;
  bool LabelsMatch(const v1::NodeInfo& node) const;
};

// All who wait for the same, in the order in which they came: what one of them
// cannot get, none can.
struct DemandClass {
  Demand demand;
  std::map<int64_t, std::string> waiting;  // Position to actor id.
  bool ready = false;                      // Not known to have to wait.

  NodeRanking ranking;
  int64_t ranked_changes = -1;  // Changes of nodes that the ranking knows of.

  bool feasible = true;
  absl::Time infeasible_since = absl::InfiniteFuture();
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_DEMAND_H_
