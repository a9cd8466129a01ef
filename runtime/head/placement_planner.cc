#include "runtime/head/placement_planner.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "runtime/head/node_ranking.h"

namespace miniray {
namespace {

using Plan = std::vector<size_t>;  // Of each bundle: index of its node.

constexpr size_t kNowhere = static_cast<size_t>(-1);
// Steps of the search that is tried when the simple ways fail.
constexpr int kMaxSearchSteps = 20000;

// How much of its node a bundle takes; for trying the large ones first.
double Size(const ResourceSet& bundle, const std::vector<PlanNode>& nodes) {
  double size = 0;
  for (const PlanNode& node : nodes) {
    if (!node.total.Covers(bundle)) continue;
    size = std::max(size, node.total.UtilisationAfter(node.total, bundle));
  }
  return size;
}

std::vector<size_t> LargestFirst(const std::vector<PlanNode>& nodes,
                                 const std::vector<ResourceSet>& bundles) {
  std::vector<double> sizes;
  for (const ResourceSet& bundle : bundles) {
    sizes.push_back(Size(bundle, nodes));
  }
  std::vector<size_t> order(bundles.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  return order;
}

std::optional<Plan> OnOneNode(const std::vector<PlanNode>& nodes,
                              const std::vector<ResourceSet>& bundles) {
  ResourceSet sum;
  for (const ResourceSet& bundle : bundles) sum.Add(bundle);
  size_t best = kNowhere;
  double best_score = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::optional<double> score =
        PlacementScore(sum, nodes[i].available, nodes[i].total);
    if (!score.has_value() || (best != kNowhere && *score >= best_score)) {
      continue;
    }
    best = i;
    best_score = *score;
  }
  if (best == kNowhere) return std::nullopt;
  return Plan(bundles.size(), best);
}

// Bundles and nodes matched one to one, by augmenting paths.
class Matching {
 public:
  Matching(const std::vector<PlanNode>& nodes,
           const std::vector<ResourceSet>& bundles)
      : holder_(nodes.size(), kNowhere) {
    for (const ResourceSet& bundle : bundles) {
      std::vector<std::pair<double, size_t>> candidates;
      for (size_t i = 0; i < nodes.size(); ++i) {
        if (nodes[i].bundles > 0) continue;
        const std::optional<double> score =
            PlacementScore(bundle, nodes[i].available, nodes[i].total);
        if (score.has_value()) candidates.emplace_back(*score, i);
      }
      std::sort(candidates.begin(), candidates.end());
      candidates_.emplace_back();
      for (const auto& [score, i] : candidates) candidates_.back().push_back(i);
    }
  }

  std::optional<Plan> Solve() {
    for (size_t bundle = 0; bundle < candidates_.size(); ++bundle) {
      std::vector<bool> seen(holder_.size(), false);
      if (!Place(bundle, &seen)) return std::nullopt;
    }
    Plan plan(candidates_.size(), kNowhere);
    for (size_t node = 0; node < holder_.size(); ++node) {
      if (holder_[node] != kNowhere) plan[holder_[node]] = node;
    }
    return plan;
  }

 private:
  bool Place(size_t bundle, std::vector<bool>* seen) {
    for (const size_t node : candidates_[bundle]) {
      if ((*seen)[node]) continue;
      (*seen)[node] = true;
      if (holder_[node] == kNowhere || Place(holder_[node], seen)) {
        holder_[node] = bundle;
        return true;
      }
    }
    return false;
  }

  std::vector<std::vector<size_t>> candidates_;  // Of each bundle, best first.
  std::vector<size_t> holder_;                   // Of each node.
};

// Fills the node that takes most of what is left, then the next.
std::optional<Plan> OnFewNodes(std::vector<PlanNode> nodes,
                               const std::vector<ResourceSet>& bundles) {
  std::vector<size_t> left = LargestFirst(nodes, bundles);
  Plan plan(bundles.size(), kNowhere);
  while (!left.empty()) {
    std::vector<size_t> best;
    size_t best_node = kNowhere;
    for (size_t i = 0; i < nodes.size(); ++i) {
      ResourceSet room = nodes[i].available;
      std::vector<size_t> fit;
      for (const size_t bundle : left) {
        if (!room.Covers(bundles[bundle])) continue;
        room.Subtract(bundles[bundle]);
        fit.push_back(bundle);
      }
      // Where the group is already counts for more.
      const bool better = fit.size() > best.size() ||
                          (!fit.empty() && fit.size() == best.size() &&
                           nodes[i].bundles > nodes[best_node].bundles);
      if (better) {
        best = std::move(fit);
        best_node = i;
      }
    }
    if (best.empty()) return std::nullopt;
    for (const size_t bundle : best) {
      plan[bundle] = best_node;
      nodes[best_node].available.Subtract(bundles[bundle]);
      left.erase(std::find(left.begin(), left.end(), bundle));
    }
  }
  return plan;
}

// Each bundle where fewest of the group are.
std::optional<Plan> OnManyNodes(std::vector<PlanNode> nodes,
                                const std::vector<ResourceSet>& bundles) {
  Plan plan(bundles.size(), kNowhere);
  for (const size_t bundle : LargestFirst(nodes, bundles)) {
    size_t best = kNowhere;
    std::pair<int, double> best_score;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::optional<double> score =
          PlacementScore(bundles[bundle], nodes[i].available, nodes[i].total);
      if (!score.has_value()) continue;
      const std::pair<int, double> both(nodes[i].bundles, *score);
      if (best == kNowhere || both < best_score) {
        best = i;
        best_score = both;
      }
    }
    if (best == kNowhere) return std::nullopt;
    plan[bundle] = best;
    nodes[best].available.Subtract(bundles[bundle]);
    ++nodes[best].bundles;
  }
  return plan;
}

// Tries everything, up to a limit.
class Search {
 public:
  Search(std::vector<PlanNode> nodes, const std::vector<ResourceSet>& bundles)
      : nodes_(std::move(nodes)),
        bundles_(bundles),
        order_(LargestFirst(nodes_, bundles)),
        plan_(bundles.size(), kNowhere) {}

  std::optional<Plan> Solve() {
    if (Place(0)) return plan_;
    return std::nullopt;
  }

 private:
  bool Place(size_t depth) {
    if (depth == order_.size()) return true;
    const size_t bundle = order_[depth];
    for (size_t i = 0; i < nodes_.size() && steps_ < kMaxSearchSteps; ++i) {
      if (!nodes_[i].available.Covers(bundles_[bundle])) continue;
      ++steps_;
      nodes_[i].available.Subtract(bundles_[bundle]);
      plan_[bundle] = i;
      if (Place(depth + 1)) return true;
      nodes_[i].available.Add(bundles_[bundle]);
    }
    return false;
  }

  std::vector<PlanNode> nodes_;
  const std::vector<ResourceSet>& bundles_;
  const std::vector<size_t> order_;
  Plan plan_;
  int steps_ = 0;
};

std::optional<Plan> MakePlan(v1::PlacementStrategy strategy,
                             const std::vector<PlanNode>& nodes,
                             const std::vector<ResourceSet>& bundles) {
  std::optional<Plan> plan;
  switch (strategy) {
    case v1::PLACEMENT_STRATEGY_STRICT_PACK:
      return OnOneNode(nodes, bundles);
    case v1::PLACEMENT_STRATEGY_STRICT_SPREAD:
      return Matching(nodes, bundles).Solve();
    case v1::PLACEMENT_STRATEGY_SPREAD:
      plan = Matching(nodes, bundles).Solve();
      if (!plan.has_value()) plan = OnManyNodes(nodes, bundles);
      if (!plan.has_value()) plan = OnFewNodes(nodes, bundles);
      break;
    default:
      if (std::none_of(nodes.begin(), nodes.end(),
                       [](const PlanNode& n) { return n.bundles > 0; })) {
        plan = OnOneNode(nodes, bundles);
      }
      if (!plan.has_value()) plan = OnFewNodes(nodes, bundles);
      if (!plan.has_value()) plan = OnManyNodes(nodes, bundles);
      break;
  }
  if (!plan.has_value()) plan = Search(nodes, bundles).Solve();
  return plan;
}

}  // namespace

std::optional<std::vector<std::string>> PlanBundles(
    v1::PlacementStrategy strategy, std::vector<PlanNode> nodes,
    const std::vector<ResourceSet>& bundles) {
  const std::optional<Plan> plan = MakePlan(strategy, nodes, bundles);
  if (!plan.has_value()) return std::nullopt;
  std::vector<std::string> result;
  for (const size_t node : *plan) result.push_back(nodes[node].node_id);
  return result;
}

}  // namespace miniray
