#include "runtime/head/placement_planner.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr auto kPack = v1::PLACEMENT_STRATEGY_PACK;
constexpr auto kSpread = v1::PLACEMENT_STRATEGY_SPREAD;
constexpr auto kStrictPack = v1::PLACEMENT_STRATEGY_STRICT_PACK;
constexpr auto kStrictSpread = v1::PLACEMENT_STRATEGY_STRICT_SPREAD;

ResourceSet Cpus(double cpus, double gpus = 0) {
  v1::Resources resources;
  (*resources.mutable_quantity())["CPU"] = cpus;
  (*resources.mutable_quantity())["GPU"] = gpus;
  return ResourceSet::FromProto(resources).value();
}

std::vector<ResourceSet> Bundles(const std::vector<double>& cpus) {
  std::vector<ResourceSet> bundles;
  for (const double count : cpus) bundles.push_back(Cpus(count));
  return bundles;
}

std::vector<PlanNode> Nodes(const std::vector<double>& cpus) {
  std::vector<PlanNode> nodes;
  for (const double count : cpus) nodes.push_back({.available = Cpus(count)});
  return nodes;
}

TEST(PlacementPlannerTest, PackUsesOneNodeWhereOneIsEnough) {
  const BundlePlan plan =
      PlanBundles(kPack, Bundles({1, 1, 1}), Nodes({2, 3, 2}));
  ASSERT_EQ(plan.outcome, BundlePlan::kFits);
  EXPECT_THAT(plan.node_of, ElementsAre(1, 1, 1));
}

TEST(PlacementPlannerTest, PackUsesAsFewNodesAsItNeeds) {
  const BundlePlan plan =
      PlanBundles(kPack, Bundles({1, 1, 1, 1}), Nodes({1, 1, 2, 2, 1}));
  ASSERT_EQ(plan.outcome, BundlePlan::kFits);
  EXPECT_EQ(std::set<size_t>(plan.node_of.begin(), plan.node_of.end()),
            (std::set<size_t>{2, 3}));
}

TEST(PlacementPlannerTest, PackStaysWithTheBundlesThatStay) {
  std::vector<PlanNode> nodes = Nodes({4, 1, 4});
  nodes[1].bundles = 2;
  const BundlePlan plan = PlanBundles(kPack, Bundles({1}), nodes);
  ASSERT_EQ(plan.outcome, BundlePlan::kFits);
  EXPECT_THAT(plan.node_of, ElementsAre(1));
}

TEST(PlacementPlannerTest, AChoiceThatLeadsNowhereIsTakenBack) {
  // The first bundles must leave the GPU node to the last one.
  std::vector<PlanNode> nodes = {{.available = Cpus(3, 1)},
                                 {.available = Cpus(2)}};
  for (const auto strategy : {kPack, kSpread}) {
    const BundlePlan plan =
        PlanBundles(strategy, {Cpus(2), Cpus(2, 1), Cpus(1)}, nodes);
    ASSERT_EQ(plan.outcome, BundlePlan::kFits);
    EXPECT_THAT(plan.node_of, ElementsAre(1, 0, 0));
  }
}

TEST(PlacementPlannerTest, SpreadUsesAsManyNodesAsThereAre) {
  const BundlePlan plan =
      PlanBundles(kSpread, Bundles({1, 1, 1}), Nodes({8, 1, 8}));
  ASSERT_EQ(plan.outcome, BundlePlan::kFits);
  EXPECT_THAT(plan.node_of, UnorderedElementsAre(0, 1, 2));
  const BundlePlan more =
      PlanBundles(kSpread, Bundles({1, 1, 1, 1}), Nodes({8, 1, 8}));
  ASSERT_EQ(more.outcome, BundlePlan::kFits);
  EXPECT_EQ(std::set<size_t>(more.node_of.begin(), more.node_of.end()).size(),
            3);
}

TEST(PlacementPlannerTest, TheLowestRankIsTakenAmongEquals) {
  std::vector<PlanNode> nodes = Nodes({4, 4, 4});
  nodes[0].rank = 0.5;
  nodes[1].rank = 0.1;
  nodes[2].rank = 0.9;
  for (const auto strategy : {kPack, kSpread, kStrictPack, kStrictSpread}) {
    const BundlePlan plan = PlanBundles(strategy, Bundles({1}), nodes);
    ASSERT_EQ(plan.outcome, BundlePlan::kFits);
    EXPECT_THAT(plan.node_of, ElementsAre(1)) << strategy;
  }
}

// A node's room, with its GPUs as devices.
ResourceSet Room(double cpus, double gpus) {
  ResourceSet room = Cpus(cpus, gpus);
  room.NumberGpus();
  return room;
}

TEST(PlacementPlannerTest, SharesOfGpusMustFitOnDevices) {
  const std::vector<PlanNode> nodes = {{.available = Room(9, 2)}};
  for (const auto strategy : {kPack, kStrictPack}) {
    // 1.8 of 2 GPUs, but no two of them on one device.
    const std::vector<ResourceSet> large = {Cpus(1, 0.6), Cpus(1, 0.6),
                                            Cpus(1, 0.6)};
    EXPECT_EQ(PlanBundles(strategy, large, nodes).outcome,
              BundlePlan::kDoesNotFit);
    // The small ones must not begin a device each.
    const BundlePlan plan = PlanBundles(
        strategy, {Cpus(1, 0.4), Cpus(1, 0.4), Cpus(1, 0.6), Cpus(1, 0.6)},
        nodes);
    ASSERT_EQ(plan.outcome, BundlePlan::kFits);
    std::map<int, double> on_device;
    for (const ResourceSet& taken : plan.taken) {
      ASSERT_EQ(taken.Gpus().size(), 1);
      on_device[taken.Gpus()[0]] += taken.ToProto().quantity().at("GPU");
    }
    EXPECT_THAT(on_device, UnorderedElementsAre(testing::Pair(0, 1.0),
                                                testing::Pair(1, 1.0)));
  }
}

TEST(PlacementPlannerTest, StrictPackIsOneNodeOrNone) {
  EXPECT_THAT(PlanBundles(kStrictPack, Bundles({2, 2}), Nodes({3, 4})).node_of,
              ElementsAre(1, 1));
  EXPECT_EQ(PlanBundles(kStrictPack, Bundles({2, 2}), Nodes({3, 3})).outcome,
            BundlePlan::kDoesNotFit);
}

TEST(PlacementPlannerTest, StrictSpreadMovesWhatStandsInTheWay) {
  // Bundle 0 fits everywhere; 1 and 2 only where 0 would go first.
  EXPECT_THAT(
      PlanBundles(kStrictSpread, Bundles({1, 3, 2}), Nodes({3, 2, 1})).node_of,
      ElementsAre(2, 0, 1));
  EXPECT_EQ(
      PlanBundles(kStrictSpread, Bundles({1, 3, 3}), Nodes({3, 2, 1})).outcome,
      BundlePlan::kDoesNotFit);
  EXPECT_EQ(PlanBundles(kStrictSpread, Bundles({1, 1}), Nodes({9})).outcome,
            BundlePlan::kDoesNotFit);
}

TEST(PlacementPlannerTest, StrictSpreadKeepsAwayFromBundlesThatStay) {
  std::vector<PlanNode> nodes = Nodes({4, 4});
  nodes[0].bundles = 1;
  EXPECT_THAT(PlanBundles(kStrictSpread, Bundles({1}), nodes).node_of,
              ElementsAre(1));
  EXPECT_EQ(PlanBundles(kStrictSpread, Bundles({1, 1}), nodes).outcome,
            BundlePlan::kDoesNotFit);
}

TEST(PlacementPlannerTest, AHopelessSearchEnds) {
  // Twenty-one bundles of 2 on twenty nodes of 3: each choice looks alike.
  const BundlePlan plan =
      PlanBundles(kPack, std::vector<ResourceSet>(21, Cpus(2)),
                  std::vector<PlanNode>(20, {.available = Cpus(3)}));
  EXPECT_EQ(plan.outcome, BundlePlan::kGaveUp);
}

// Whether there is a way at all, by trying all.
bool Possible(v1::PlacementStrategy strategy,
              const std::vector<ResourceSet>& bundles, size_t next,
              std::vector<PlanNode>* nodes) {
  if (next == bundles.size()) return true;
  for (size_t i = 0; i < nodes->size(); ++i) {
    PlanNode& node = (*nodes)[i];
    if (!node.available.Covers(bundles[next])) continue;
    if (strategy == kStrictSpread && node.bundles > 0) continue;
    if (strategy == kStrictPack && next > 0 && node.bundles == 0) continue;
    node.available.Subtract(bundles[next]);
    ++node.bundles;
    const bool possible = Possible(strategy, bundles, next + 1, nodes);
    --node.bundles;
    node.available.Add(bundles[next]);
    if (possible) return true;
  }
  return false;
}

TEST(PlacementPlannerTest, AgreesWithAnExhaustiveSearch) {
  std::mt19937_64 random(1);
  const auto below = [&](size_t limit) {
    return static_cast<size_t>(random() % limit);
  };
  int fits = 0, does_not = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<ResourceSet> bundles;
    std::vector<PlanNode> nodes;
    for (size_t i = below(5) + 1; i > 0; --i) {
      bundles.push_back(Cpus(static_cast<double>(below(4) + 1),
                             static_cast<double>(below(2))));
    }
    for (size_t i = below(5); i > 0; --i) {
      nodes.push_back({.available = Cpus(static_cast<double>(below(7)),
                                         static_cast<double>(below(3))),
                       .rank = static_cast<double>(below(3))});
    }
    for (const auto strategy : {kPack, kSpread, kStrictPack, kStrictSpread}) {
      SCOPED_TRACE(absl::StrCat("round ", round, " strategy ", strategy));
      const BundlePlan plan = PlanBundles(strategy, bundles, nodes);
      std::vector<PlanNode> tried = nodes;
      ASSERT_EQ(plan.outcome, Possible(strategy, bundles, 0, &tried)
                                  ? BundlePlan::kFits
                                  : BundlePlan::kDoesNotFit);
      if (plan.outcome != BundlePlan::kFits) {
        ++does_not;
        continue;
      }
      ++fits;
      ASSERT_EQ(plan.node_of.size(), bundles.size());
      for (size_t i = 0; i < bundles.size(); ++i) {
        ASSERT_TRUE(tried[plan.node_of[i]].available.Covers(bundles[i]));
        tried[plan.node_of[i]].available.Subtract(bundles[i]);
      }
      const std::set<size_t> used(plan.node_of.begin(), plan.node_of.end());
      if (strategy == kStrictPack) {
        ASSERT_EQ(used.size(), 1);
      } else if (strategy == kStrictSpread) {
        ASSERT_EQ(used.size(), bundles.size());
      }
    }
  }
  EXPECT_GT(fits, 500);
  EXPECT_GT(does_not, 500);
}

}  // namespace
}  // namespace miniray
