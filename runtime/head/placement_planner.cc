#include "runtime/head/placement_planner.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace miniray {
namespace {

// Comparisons of a bundle with a node: some 20 ms.
constexpr int64_t kSearchBudget = 200000;

constexpr size_t kNoNode = static_cast<size_t>(-1);
constexpr size_t kNoBundle = static_cast<size_t>(-1);

// The nodes' indexes, those to be preferred first.
std::vector<size_t> ByRank(const std::vector<PlanNode>& nodes) {
  std::vector<size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return nodes[a].rank < nodes[b].rank;
  });
  return order;
}

// Takes all of them from `room`, or returns nothing.
std::optional<std::vector<ResourceSet>> TakeAll(
    const std::vector<ResourceSet>& bundles, ResourceSet room) {
  std::vector<size_t> order(bundles.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return bundles[a].GpuUnits() > bundles[b].GpuUnits();
  });
  std::vector<ResourceSet> taken(bundles.size());
  for (const size_t i : order) {
    if (!room.Covers(bundles[i])) return std::nullopt;
    taken[i] = room.Take(bundles[i]);
  }
  return taken;
}

BundlePlan OnOneNode(const std::vector<ResourceSet>& bundles,
                     const std::vector<PlanNode>& nodes) {
  ResourceSet sum;
  for (const ResourceSet& bundle : bundles) sum.Add(bundle);
  const bool some_stay = std::any_of(
      nodes.begin(), nodes.end(), [](const auto& n) { return n.bundles > 0; });
  for (const size_t i : ByRank(nodes)) {
    if (some_stay && nodes[i].bundles == 0) continue;
    if (!nodes[i].available.CoversSums(sum)) continue;
    auto taken = TakeAll(bundles, nodes[i].available);
    if (taken.has_value()) {
      return {BundlePlan::kFits, std::vector<size_t>(bundles.size(), i),
              *std::move(taken)};
    }
  }
  return {};
}

// Each bundle on a node of its own: a matching, found by augmenting paths.
class Matching {
 public:
  Matching(const std::vector<ResourceSet>& bundles,
           const std::vector<PlanNode>& nodes)
      : bundles_(bundles),
        nodes_(nodes),
        order_(ByRank(nodes)),
        bundle_on_(nodes.size(), kNoBundle) {
    std::erase_if(order_, [&](size_t i) { return nodes[i].bundles > 0; });
  }

  BundlePlan Find() {
    if (bundles_.size() > order_.size()) return {};
    for (size_t i = 0; i < bundles_.size(); ++i) {
      visited_.assign(nodes_.size(), false);
      if (!Place(i)) return {};
    }
    BundlePlan plan{BundlePlan::kFits, std::vector<size_t>(bundles_.size()),
                    std::vector<ResourceSet>(bundles_.size())};
    for (size_t node = 0; node < bundle_on_.size(); ++node) {
      const size_t bundle = bundle_on_[node];
      if (bundle == kNoBundle) continue;
      ResourceSet room = nodes_[node].available;
      plan.node_of[bundle] = node;
      plan.taken[bundle] = room.Take(bundles_[bundle]);
    }
    return plan;
  }

 private:
  bool Place(size_t bundle) {
    // A free node first; only then others are moved.
    for (const bool move : {false, true}) {
      for (const size_t node : order_) {
        if (visited_[node] || (bundle_on_[node] != kNoBundle) != move ||
            !nodes_[node].available.Covers(bundles_[bundle])) {
          continue;
        }
        visited_[node] = true;
        if (!move || Place(bundle_on_[node])) {
          bundle_on_[node] = bundle;
          return true;
        }
      }
    }
    return false;
  }

  const std::vector<ResourceSet>& bundles_;
  const std::vector<PlanNode>& nodes_;
  std::vector<size_t> order_;
  std::vector<size_t> bundle_on_;  // By node.
  std::vector<bool> visited_;      // Nodes, in this search.
};

// One bundle after the other, on the node that is best then.
class Search {
 public:
  Search(bool spread, const std::vector<ResourceSet>& bundles,
         std::vector<PlanNode> nodes)
      : spread_(spread),
        bundles_(bundles),
        nodes_(std::move(nodes)),
        node_of_(bundles.size(), kNoNode),
        taken_(bundles.size()) {
    // What fits on the fewest nodes goes first.
    std::vector<size_t> choices(bundles.size());
    for (size_t i = 0; i < bundles.size(); ++i) {
      choices[i] = static_cast<size_t>(std::count_if(
          nodes_.begin(), nodes_.end(),
          [&](const auto& node) { return node.available.Covers(bundles[i]); }));
    }
    order_.resize(bundles.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      if (choices[a] != choices[b]) return choices[a] < choices[b];
      return bundles[a].Covers(bundles[b]) && !bundles[b].Covers(bundles[a]);
    });
  }

  BundlePlan Find() {
    BundlePlan plan;
    if (Place(0)) {
      plan.outcome = BundlePlan::kFits;
      plan.node_of = node_of_;
      plan.taken = taken_;
    } else if (budget_ <= 0) {
      plan.outcome = BundlePlan::kGaveUp;
    }
    return plan;
  }

 private:
  bool Place(size_t step) {
    if (step == order_.size()) return true;
    const size_t bundle = order_[step];
    for (const size_t i : Candidates(step)) {
      taken_[bundle] = nodes_[i].available.Take(bundles_[bundle]);
      ++nodes_[i].bundles;
      node_of_[bundle] = i;
      if (Place(step + 1)) return true;
      --nodes_[i].bundles;
      nodes_[i].available.Add(taken_[bundle]);
      if (budget_ <= 0) return false;
    }
    return false;
  }

  // Where the bundle of this step fits, the best first.
  std::vector<size_t> Candidates(size_t step) {
    budget_ -= static_cast<int64_t>(nodes_.size());
    std::vector<std::tuple<int64_t, double, size_t>> found;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].available.Covers(bundles_[order_[step]])) continue;
      found.emplace_back(spread_ ? nodes_[i].bundles : PackCost(i, step),
                         nodes_[i].rank, i);
    }
    std::sort(found.begin(), found.end());
    std::vector<size_t> result;
    result.reserve(found.size());
    for (const auto& [cost, rank, i] : found) result.push_back(i);
    return result;
  }

  // Nodes that are used already first, then those that hold most of the rest.
  int64_t PackCost(size_t node, size_t step) {
    const auto rest = static_cast<int64_t>(order_.size() - step);
    if (nodes_[node].bundles > 0) return -rest - 1;
    ResourceSet available = nodes_[node].available;
    int64_t held = 0;
    for (size_t i = step; i < order_.size(); ++i) {
      if (!available.Covers(bundles_[order_[i]])) continue;
      available.Take(bundles_[order_[i]]);
      ++held;
    }
    budget_ -= rest;
    return -held;
  }

  const bool spread_;
  const std::vector<ResourceSet>& bundles_;
  std::vector<PlanNode> nodes_;
  std::vector<size_t> order_;  // Of the bundles.
  std::vector<size_t> node_of_;
  std::vector<ResourceSet> taken_;
  int64_t budget_ = kSearchBudget;
};

}  // namespace

BundlePlan PlanBundles(v1::PlacementStrategy strategy,
                       const std::vector<ResourceSet>& bundles,
                       std::vector<PlanNode> nodes) {
  const bool spread = strategy == v1::PLACEMENT_STRATEGY_SPREAD ||
                      strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD;
  BundlePlan best =
      spread ? Matching(bundles, nodes).Find() : OnOneNode(bundles, nodes);
  if (best.outcome == BundlePlan::kFits ||
      strategy == v1::PLACEMENT_STRATEGY_STRICT_PACK ||
      strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD) {
    return best;
  }
  return Search(spread, bundles, std::move(nodes)).Find();
}

}  // namespace miniray
