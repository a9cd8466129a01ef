// Where actors may run by node, by label and by name; and what they are told
// while they wait.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AffinityTest : public ClusterStateTest {
 protected:
  std::shared_ptr<FakeLink> AddLabelled(const std::string& node, double cpus,
                                        const std::string& zone) {
    v1::RegisterNode request = Registration(node, cpus);
    (*request.mutable_labels())["zone"] = zone;
    auto link = std::make_shared<FakeLink>();
    EXPECT_THAT(state_.RegisterNode(request, link), IsOk());
    return link;
  }
  v1::ActorSpec On(const std::string& node, const std::string& actor,
                   bool soft = false) {
    v1::ActorSpec spec = Spec(actor);
    spec.set_node_id(node);
    spec.set_soft_affinity(soft);
    return spec;
  }
  v1::ActorSpec InZone(const std::string& zone, const std::string& actor) {
    v1::ActorSpec spec = Spec(actor);
    (*spec.mutable_node_labels())["zone"] = zone;
    return spec;
  }
  void StayAlive(absl::Duration time) {
    now_ += time;
    const v1::GetClusterStateResponse snapshot = state_.Snapshot();
    for (const v1::NodeInfo& node : snapshot.nodes()) {
      state_.RenewLease(node.node_id()).IgnoreError();
    }
    state_.Tick();
  }
};

TEST_F(AffinityTest, HardAffinityWaitsForItsNode) {
  AddNode("a", 4);
  AddNode("b", 1);
  for (const std::string actor : {"x", "y"}) Create(On("b", actor));
  EXPECT_EQ(Info("x").node_id(), "b");
  EXPECT_EQ(StateOf("y"), v1::ACTOR_STATE_PENDING);
  EXPECT_EQ(Info("y").cause(),
            "waits for CPU 1 on node b: all of it is in use");
  Exited("b", "x");
  EXPECT_EQ(Info("y").node_id(), "b");
}

TEST_F(AffinityTest, HardAffinityToADeadNodeFailsInTime) {
  AddNode("a", 4);
  AddNode("b", 4);
  state_.NodeLeft("b");
  Create(On("b", "x"));
  EXPECT_EQ(StateOf("x"), v1::ACTOR_STATE_PENDING);
  StayAlive(kInfeasible);
  EXPECT_EQ(StateOf("x"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("x").cause(), HasSubstr("it asks for CPU 1 on node b"));
}

TEST_F(AffinityTest, SoftAffinityWaitsForALivingNodeAndLeavesADeadOne) {
  AddNode("a", 4);
  AddNode("b", 1);
  Create(On("b", "x", true));
  Create(On("b", "y", true));
  EXPECT_EQ(Info("x").node_id(), "b");
  EXPECT_EQ(StateOf("y"), v1::ACTOR_STATE_PENDING);
  state_.NodeLeft("b");
  EXPECT_EQ(Info("y").node_id(), "a");
  Create(On("unknown", "z", true));
  EXPECT_EQ(Info("z").node_id(), "a");
}

TEST_F(AffinityTest, SoftAffinityLeavesANodeThatIsTooSmall) {
  AddNode("a", 4);
  AddNode("b", 1);
  v1::ActorSpec spec = On("b", "x", true);
  (*spec.mutable_resources()->mutable_quantity())["CPU"] = 2;
  Create(spec);
  EXPECT_EQ(Info("x").node_id(), "a");
}

TEST_F(AffinityTest, ACutNodeIsNamedAsTheReason) {
  auto link = AddNode("b", 1);
  state_.NodeDisconnected("b", link.get());
  Create(On("b", "x"));
  EXPECT_EQ(Info("x").cause(),
            "waits for CPU 1 on node b: it is cut from the head");
}

TEST_F(AffinityTest, WhoAsksForNothingWaitsForAPlace) {
  auto link = AddNode("b", 1);
  state_.NodeDisconnected("b", link.get());
  const auto ask_for_nothing = [this](v1::ActorSpec spec) {
    spec.clear_resources();
    return Create(spec).cause();
  };
  EXPECT_EQ(ask_for_nothing(Spec("w")),
            "waits for a node: every such node is cut from the head");
  EXPECT_EQ(ask_for_nothing(On("b", "x")),
            "waits for node b: it is cut from the head");
  EXPECT_EQ(ask_for_nothing(InZone("west", "y")),
            "waits for a node with zone=west: there is none");
  Demand demand;
  demand.group_id = "g";
  EXPECT_EQ(demand.ToString(), "a bundle of placement group g");
  demand.bundle_index = 2;
  demand.node_id = "b";
  EXPECT_EQ(demand.ToString(), "bundle 2 of placement group g on node b");
}

TEST_F(AffinityTest, NorIsWhatACutNodeHasInUse) {
  AddNode("small", 1);
  auto link = AddLabelled("b", 4, "west");
  state_.NodeDisconnected("b", link.get());
  Create("x", 2);
  EXPECT_EQ(Info("x").cause(),
            "waits for CPU 2: the nodes that have that much are cut from the "
            "head");
  Create(InZone("west", "y"));
  EXPECT_EQ(Info("y").cause(),
            "waits for CPU 1 on a node with zone=west: the nodes that have "
            "that much are cut from the head");
  AddLabelled("b", 4, "west");
  EXPECT_EQ(Info("x").node_id(), "b");
  EXPECT_EQ(Info("y").node_id(), "b");
}

TEST_F(AffinityTest, LabelsMustAllMatch) {
  AddLabelled("a", 4, "east");
  AddLabelled("b", 1, "west");
  Create(InZone("west", "x"));
  EXPECT_EQ(Info("x").node_id(), "b");
  Create(InZone("west", "y"));
  EXPECT_EQ(Info("y").cause(),
            "waits for CPU 1 on a node with zone=west: all of it is in use");
  v1::ActorSpec both = InZone("east", "z");
  (*both.mutable_node_labels())["disk"] = "ssd";
  Create(both);
  EXPECT_THAT(Info("z").cause(), HasSubstr("no node has that much"));
  AddLabelled("c", 1, "west");
  EXPECT_EQ(Info("y").node_id(), "c");
  StayAlive(kInfeasible);
  EXPECT_THAT(Info("z").cause(),
              AllOf(HasSubstr("on a node with disk=ssd, zone=east"),
                    HasSubstr("has CPU 4, labels zone=east")));
}

TEST_F(AffinityTest, GetIfExistsReturnsTheLivingActorOfTheClass) {
  AddNode("a", 4);
  v1::ActorSpec first = Spec("first");
  first.set_name("n");
  first.set_get_if_exists(true);
  EXPECT_EQ(Create(first).actor_id(), "first");
  v1::ActorSpec second = first;
  second.set_actor_id("second");
  EXPECT_EQ(Create(second).actor_id(), "first");
  EXPECT_EQ(state_.Snapshot().actors_size(), 1);
  second.set_class_name("shop::Other");
  EXPECT_THAT(state_.CreateActor(second),
              StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_THAT(state_.KillActor("first", true), IsOk());
  EXPECT_EQ(Create(second).actor_id(), "second");
}

TEST_F(AffinityTest, ARestartSaysWhyItDiedAndWhatItWaitsFor) {
  AddNode("a", 4);
  v1::ActorSpec spec = Spec("x", 3);
  spec.set_max_restarts(1);
  Create(spec);
  Create("big", 4);
  Started("a", "x");
  Exited("a", "x");
  // "big" was first in the queue.
  EXPECT_EQ(StateOf("x"), v1::ACTOR_STATE_RESTARTING);
  EXPECT_EQ(Info("x").cause(),
            "exited with code 3 on node a (host-a, 10.0.0.1); now it waits for "
            "CPU 3: all of it is in use");
}

TEST_F(AffinityTest, TheQueueKeepsItsOrderAcrossDemands) {
  auto link = AddNode("a", 2);
  Create("first", 2);
  link->Take();
  Create("x1", 1);
  Create("y1", 2);
  Create("x2", 1);
  Create("z1", 1);
  Exited("a", "first");
  // y1 does not fit beside x1, and does not hold up those behind it.
  EXPECT_THAT(link->Take(), ElementsAre("start x1.0", "start x2.0"));
  Exited("a", "x1");
  EXPECT_THAT(link->Take(), ElementsAre("start z1.0"));
  Exited("a", "x2");
  EXPECT_THAT(link->Take(), IsEmpty());
  Exited("a", "z1");
  EXPECT_THAT(link->Take(), ElementsAre("start y1.0"));
}

}  // namespace
}  // namespace miniray
