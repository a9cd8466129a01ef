// Which node is best for one kind of request, kept by looking at the nodes that
// change instead of at all of them.

#ifndef MINIRAY_RUNTIME_HEAD_NODE_RANKING_H_
#define MINIRAY_RUNTIME_HEAD_NODE_RANKING_H_

#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/head/resources.h"

namespace miniray {

// What taking `request` from a node makes of it: the smallest score is the best
// choice. Below half full the fuller node wins, so that small jobs stay
// together; beyond, the emptier one, so that load is spread. Nothing: it does
// not fit.
std::optional<double> PlacementScore(const ResourceSet& request,
                                     const ResourceSet& available,
                                     const ResourceSet& total);

// Not thread-safe.
class NodeRanking {
 public:
  // Nothing: it is no candidate.
  void Update(const std::string& node_id, std::optional<double> score);
  // The node with the smallest score, of equal ones that with the smallest id;
  // null: there is none.
  const std::string* Best() const;
  void Clear();

 private:
  std::set<std::pair<double, std::string>> ranked_;
  std::unordered_map<std::string, double> scores_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_NODE_RANKING_H_
