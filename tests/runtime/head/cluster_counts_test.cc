// The tables in numbers.

#include "runtime/head/cluster_counts.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class ClusterCountsTest : public ClusterStateTest {
 protected:
  std::shared_ptr<FakeLink> AddNodeAt(const std::string& node,
                                      const std::string& metrics_address) {
    v1::RegisterNode request = Registration(node, 1);
    request.set_metrics_address(metrics_address);
    auto link = std::make_shared<FakeLink>();
    EXPECT_THAT(state_.RegisterNode(request, link), IsOk());
    return link;
  }

  // "node hostname address", of all that there are.
  std::vector<std::string> Addresses() const {
    std::vector<std::string> all;
    for (const auto& item : state_.Counts().metrics_addresses) {
      all.push_back(item.node_id + " " + item.hostname + " " + item.address);
    }
    return all;
  }
};

TEST_F(ClusterCountsTest, NothingIsThereAtFirst) {
  const ClusterCounts counts = state_.Counts();
  EXPECT_THAT(counts.nodes, IsEmpty());
  EXPECT_THAT(counts.actors, IsEmpty());
  EXPECT_THAT(counts.jobs, IsEmpty());
  EXPECT_THAT(counts.groups, IsEmpty());
  EXPECT_THAT(counts.resources, IsEmpty());
  EXPECT_EQ(counts.actor_restarts, 0);
  EXPECT_EQ(counts.nodes_lost, 0);
}

TEST_F(ClusterCountsTest, RecordsAreCountedByState) {
  AddNode("n1", 4);
  Attach("job");
  Create("a");
  Create("b");
  Started("n1", "a");
  Create("c", 100);  // No node has so many.
  v1::PlacementGroupSpec group;
  group.set_placement_group_id("g");
  group.set_job_id("job");
  group.set_strategy(v1::PLACEMENT_STRATEGY_PACK);
  (*group.add_bundles()->mutable_quantity())["CPU"] = 1;
  ASSERT_THAT(state_.CreatePlacementGroup(group), IsOk());

  ClusterCounts counts = state_.Counts();
  EXPECT_THAT(counts.nodes, ElementsAre(Pair(v1::NODE_STATE_ALIVE, 1)));
  EXPECT_THAT(counts.actors, ElementsAre(Pair(v1::ACTOR_STATE_PENDING, 1),
                                         Pair(v1::ACTOR_STATE_STARTING, 1),
                                         Pair(v1::ACTOR_STATE_ALIVE, 1)));
  EXPECT_THAT(counts.jobs, ElementsAre(Pair(v1::JOB_STATE_RUNNING, 1)));
  EXPECT_THAT(counts.groups,
              ElementsAre(Pair(v1::PLACEMENT_GROUP_STATE_CREATED, 1)));
  EXPECT_THAT(counts.resources, ElementsAre(Pair("CPU", 4)));
  // Without a, b and the group's bundle.
  EXPECT_THAT(counts.available, ElementsAre(Pair("CPU", 1)));

  Exited("n1", "a", 0, /*may_restart=*/false);
  counts = state_.Counts();
  EXPECT_THAT(counts.actors, ElementsAre(Pair(v1::ACTOR_STATE_PENDING, 1),
                                         Pair(v1::ACTOR_STATE_STARTING, 1),
                                         Pair(v1::ACTOR_STATE_DEAD, 1)));
  EXPECT_THAT(counts.available, ElementsAre(Pair("CPU", 2)));
  EXPECT_EQ(counts.actor_restarts, 0);
}

TEST_F(ClusterCountsTest, WhatADisconnectedNodeOffersDoesNotCount) {
  const auto link = AddNode("n1", 4);
  AddNode("n2", 2);
  state_.NodeDisconnected("n1", link.get());
  const ClusterCounts counts = state_.Counts();
  EXPECT_THAT(counts.nodes, ElementsAre(Pair(v1::NODE_STATE_ALIVE, 1),
                                        Pair(v1::NODE_STATE_DISCONNECTED, 1)));
  EXPECT_THAT(counts.resources, ElementsAre(Pair("CPU", 2)));
}

TEST_F(ClusterCountsTest, RestartsAddUpAlsoOfActorsThatAreDead) {
  AddNode("n1", 4);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(2);
  Create(spec);
  for (int incarnation = 0; incarnation < 3; ++incarnation) {
    // Past what it has to wait before it starts again.
    Advance(absl::Seconds(5));
    ASSERT_THAT(state_.RenewLease("n1"), IsOk());
    Started("n1", "a", incarnation);
    Exited("n1", "a", incarnation);
    EXPECT_EQ(state_.Counts().actor_restarts, std::min(incarnation + 1, 2));
  }
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
}

TEST_F(ClusterCountsTest, OnlyNodesThatFellSilentAreLost) {
  AddNode("n1", 1);
  AddNode("n2", 1);
  state_.NodeLeft("n1");
  EXPECT_EQ(state_.Counts().nodes_lost, 0);
  Advance(kLease);
  EXPECT_EQ(state_.Counts().nodes_lost, 1);
  EXPECT_THAT(state_.Counts().nodes, ElementsAre(Pair(v1::NODE_STATE_DEAD, 2)));
  // A daemon that was cut off, and comes as a new node.
  AddNode("old", 1);
  v1::RegisterNode request = Registration("new", 1);
  request.add_replaced_node_ids("old");
  ASSERT_THAT(state_.RegisterNode(request, std::make_shared<FakeLink>()),
              IsOk());
  EXPECT_EQ(state_.Counts().nodes_lost, 2);
}

TEST_F(ClusterCountsTest, MetricsAddressesAreThoseOfNodesThatMayLive) {
  AddNode("n0", 1);  // It has no /metrics.
  const auto link = AddNodeAt("n1", "10.0.0.1:1111");
  AddNodeAt("n2", "10.0.0.2:2222");
  EXPECT_THAT(Addresses(), ElementsAre("n1 host-n1 10.0.0.1:1111",
                                       "n2 host-n2 10.0.0.2:2222"));
  state_.NodeDisconnected("n1", link.get());
  state_.NodeLeft("n2");
  EXPECT_THAT(Addresses(), ElementsAre("n1 host-n1 10.0.0.1:1111"));
  // The daemon is another one, and so is its port.
  AddNodeAt("n1", "10.0.0.1:3333");
  EXPECT_THAT(Addresses(), ElementsAre("n1 host-n1 10.0.0.1:3333"));
}

}  // namespace
}  // namespace miniray
