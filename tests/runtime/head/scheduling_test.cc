// Which actor runs where, and when.

#include <string>
#include <vector>

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

using SchedulingTest = ClusterStateTest;

TEST_F(SchedulingTest, AnActorStartsAtOnceWhereThereIsRoom) {
  const auto link = AddNode("n", 4);
  EXPECT_THAT(link->Take(), ElementsAre("registered"));
  v1::ActorSpec spec = Spec("a", 1.5);
  spec.add_constructor_args()->set_int_value(7);
  const v1::ActorInfo info = Create(spec);
  EXPECT_EQ(info.state(), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(info.node_id(), "n");
  EXPECT_EQ(info.hostname(), "host-n");
  EXPECT_EQ(info.resources().quantity().at("CPU"), 1.5);
  ASSERT_EQ(link->sent.size(), 1u);
  EXPECT_EQ(link->sent[0].start_actor().spec().SerializeAsString(),
            spec.SerializeAsString());
  EXPECT_EQ(link->sent[0].start_actor().incarnation(), 0);
  EXPECT_EQ(Available("n"), 2.5);
  Started("n", "a");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  EXPECT_EQ(Info("a").address(), "10.0.0.1:5000");
  EXPECT_EQ(Info("a").pid(), 4242);
  EXPECT_EQ(Available("n"), 2.5);
}

TEST_F(SchedulingTest, RegistrationIsAnsweredWithTheLeaseBeforeAnythingElse) {
  Create("a");
  const auto link = AddNode("n", 4);
  ASSERT_EQ(link->sent.size(), 2u);
  EXPECT_EQ(link->sent[0].registered().lease_ms(), 10000);
  EXPECT_THAT(link->Take(), ElementsAre("registered", "start a.0"));
}

TEST_F(SchedulingTest, PacksANodeUntilHalfThenSpreads) {
  AddNode("n1", 4);
  AddNode("n2", 4);
  AddNode("n3", 4);
  std::vector<std::string> nodes;
  for (int i = 0; i < 12; ++i) {
    nodes.push_back(Create("a" + std::to_string(i)).node_id());
  }
  // Half of each node in turn, then always the emptiest.
  EXPECT_THAT(nodes, ElementsAre("n1", "n1", "n2", "n2", "n3", "n3", "n1", "n2",
                                 "n3", "n1", "n2", "n3"));
  EXPECT_EQ(Create("late").state(), v1::ACTOR_STATE_PENDING);
}

TEST_F(SchedulingTest, NothingNewStartsOnANodeThatIsBeingStopped) {
  AddNode("n1", 4);
  AddNode("n2", 4);
  ASSERT_EQ(Create("a").node_id(), "n1");
  state_.NodeStopping("n2");
  for (const char* actor : {"b", "c", "d"}) {
    EXPECT_EQ(Create(actor).node_id(), "n1") << actor;
  }
  EXPECT_EQ(Create("e").state(), v1::ACTOR_STATE_PENDING);
  Exited("n1", "a");
  EXPECT_EQ(Info("e").node_id(), "n1");
}

TEST_F(SchedulingTest, ALargeActorGoesWhereItFits) {
  AddNode("n1", 2);
  AddNode("n2", 8);
  EXPECT_EQ(Create("small").node_id(), "n1");
  EXPECT_EQ(Create("large", 6).node_id(), "n2");
  EXPECT_EQ(Create("medium", 2).node_id(), "n2");
}

TEST_F(SchedulingTest, EveryResourceCounts) {
  v1::RegisterNode gpu = Registration("n2", 4);
  (*gpu.mutable_total()->mutable_quantity())["GPU"] = 1;
  AddNode("n1", 4);
  const auto link = std::make_shared<FakeLink>();
  ASSERT_THAT(state_.RegisterNode(gpu, link), IsOk());
  v1::ActorSpec spec = Spec("a");
  (*spec.mutable_resources()->mutable_quantity())["GPU"] = 0.5;
  EXPECT_EQ(Create(spec).node_id(), "n2");
  spec.set_actor_id("b");
  EXPECT_EQ(Create(spec).node_id(), "n2");
  EXPECT_EQ(Available("n2", "GPU"), 0);
  spec.set_actor_id("c");
  EXPECT_EQ(Create(spec).state(), v1::ACTOR_STATE_PENDING);
  EXPECT_EQ(Create("d").node_id(), "n1");
}

TEST_F(SchedulingTest, AnActorWithoutResourcesStartsOnAFullNode) {
  AddNode("n", 1);
  Create("a");
  EXPECT_EQ(Create("b", 0).state(), v1::ACTOR_STATE_STARTING);
}

TEST_F(SchedulingTest, ThoseWhoWaitStartInTurn) {
  const auto link = AddNode("n", 2);
  for (const char* actor : {"a", "b", "c", "d", "e"}) Create(actor);
  EXPECT_THAT(link->Take(),
              ElementsAre("registered", "start a.0", "start b.0"));
  EXPECT_THAT(Info("c").cause(),
              AllOf(HasSubstr("CPU 1"), HasSubstr("all of it is in use")));
  Exited("n", "b", 0, false);
  EXPECT_THAT(link->Take(), ElementsAre("start c.0"));
  EXPECT_THAT(Info("c").cause(), IsEmpty());
  Exited("n", "a", 0, false);
  Exited("n", "c", 0, false);
  EXPECT_THAT(link->Take(), ElementsAre("start d.0", "start e.0"));
}

TEST_F(SchedulingTest, ASmallActorNeedNotWaitBehindALargeOne) {
  const auto link = AddNode("n", 2);
  Create("a");
  Create("large", 2);
  Create("small", 1);
  EXPECT_THAT(link->Take(),
              ElementsAre("registered", "start a.0", "start small.0"));
}

TEST_F(SchedulingTest, ANewNodeTakesThoseWhoWait) {
  Create("a");
  Create("b");
  EXPECT_THAT(Info("a").cause(), HasSubstr("no node is alive"));
  EXPECT_THAT(AddNode("n", 2)->Take(),
              ElementsAre("registered", "start a.0", "start b.0"));
}

TEST_F(SchedulingTest, ANodeThatIsCutOffGetsNothing) {
  const auto link = AddNode("n1", 4);
  AddNode("n2", 4);
  state_.NodeDisconnected("n1", link.get());
  EXPECT_EQ(Create("a", 4).node_id(), "n2");
  EXPECT_EQ(Create("b", 4).state(), v1::ACTOR_STATE_PENDING);
  // It may come back: the request is not hopeless.
  EXPECT_THAT(Info("b").cause(), HasSubstr("in use"));
}

// --- Requests that no node can ever meet.

TEST_F(SchedulingTest, AnInfeasibleRequestFailsWithWhatTheNodesHave) {
  AddNode("n1", 4);
  AddNode("n2", 2);
  Create("a", 8);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_PENDING);
  EXPECT_THAT(Info("a").cause(),
              AllOf(HasSubstr("CPU 8"), HasSubstr("no node has that much")));
  for (int i = 0; i < 29; ++i) {
    state_.RenewLease("n1").IgnoreError();
    state_.RenewLease("n2").IgnoreError();
    Advance(absl::Seconds(1));
  }
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_PENDING);
  Advance(absl::Seconds(1));
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Info("a").cause(),
            "cannot be placed: it asks for CPU 8, but host-n1 (n1) has CPU 4; "
            "host-n2 (n2) has CPU 2");
}

TEST_F(SchedulingTest, NoNodesAtAll) {
  Create("a", 1);
  Advance(kInfeasible);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(
      Info("a").cause(),
      "cannot be placed: it asks for CPU 1, but the cluster has no nodes");
}

TEST_F(SchedulingTest, AFittingNodeInTimeSavesIt) {
  Create("a", 4);
  Advance(kInfeasible - absl::Seconds(1));
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_PENDING);
  AddNode("n", 4);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_STARTING);
}

TEST_F(SchedulingTest, WaitingForAFullNodeIsNeverInfeasible) {
  AddNode("n", 1);
  Create("a");
  Create("b");
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(state_.RenewLease("n"), IsOk());
    Advance(absl::Seconds(9));
  }
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_PENDING);
}

TEST_F(SchedulingTest, TheInfeasibleTimeStartsWhenTheNodeIsLost) {
  AddNode("n", 1);
  Create("a");
  Create("b");
  Advance(kLease - absl::Seconds(1));
  state_.NodeLeft("n");
  Advance(kInfeasible - absl::Seconds(1));
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_PENDING);
  Advance(absl::Seconds(1));
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_DEAD);
}

TEST_F(SchedulingTest, ARestartThatFindsNoNodeFailsTheSameWay) {
  AddNode("n", 1);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(-1);
  Create(spec);
  Started("n", "a");
  state_.NodeLeft("n");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  Advance(kInfeasible);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(), HasSubstr("cannot be placed"));
}

// --- Requests that are wrong.

TEST_F(SchedulingTest, WrongRequestsAreRefused) {
  AddNode("n", 4);
  const auto refused = [&](const v1::ActorSpec& spec, const char* text) {
    EXPECT_THAT(state_.CreateActor(spec),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  v1::ActorSpec spec = Spec("");
  refused(spec, "id");
  spec = Spec("a");
  spec.clear_class_name();
  refused(spec, "class");
  spec = Spec("a");
  spec.clear_package_id();
  refused(spec, "package");
  spec = Spec("a");
  spec.set_max_restarts(-2);
  refused(spec, "max_restarts = -2");
  refused(Spec("a", -1), "CPU");
  EXPECT_EQ(state_.Snapshot().actors_size(), 0);

  EXPECT_THAT(state_.RegisterNode(Registration("", 1), nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("id")));
  EXPECT_THAT(state_.RegisterNode(Registration("x", -1), nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("CPU")));
  EXPECT_EQ(state_.Snapshot().nodes_size(), 1);
}

TEST_F(SchedulingTest, ARepeatedCreateIsTheSameActor) {
  const auto link = AddNode("n", 4);
  const v1::ActorInfo first = Create("a");
  const v1::ActorInfo second = Create("a");
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_EQ(Available("n"), 3);
  EXPECT_THAT(link->Take(), ElementsAre("registered", "start a.0"));
  // Even after its death, and even if it has a name that another one has now.
  v1::ActorSpec named = Spec("b");
  named.set_name("name");
  Create(named);
  ASSERT_THAT(state_.KillActor("b", true), IsOk());
  v1::ActorSpec other = Spec("c");
  other.set_name("name");
  Create(other);
  EXPECT_EQ(Create(named).state(), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(FindByName("name")->actor_id(), "c");
}

// --- Names.

TEST_F(SchedulingTest, ANameIsTakenWhileItsActorLives) {
  AddNode("n", 4);
  v1::ActorSpec spec = Spec("a");
  spec.set_name("counter");
  Create(spec);
  EXPECT_EQ(FindByName("counter")->actor_id(), "a");
  spec.set_actor_id("b");
  EXPECT_THAT(state_.CreateActor(spec),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("'counter'"), HasSubstr("a"),
                             HasSubstr("job job"))));
  EXPECT_EQ(state_.Snapshot().actors_size(), 1);
  EXPECT_EQ(Available("n"), 3);
  // In another namespace it is another name.
  spec.set_actor_namespace("space");
  Create(spec);
  EXPECT_EQ(FindByName("counter", "space")->actor_id(), "b");
  EXPECT_EQ(FindByName("counter")->actor_id(), "a");
  EXPECT_THAT(FindByName("counter", "other"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("'counter'"), HasSubstr("'other'"))));
}

TEST_F(SchedulingTest, ANameIsFreeAsSoonAsItsActorIsDead) {
  AddNode("n", 4);
  v1::ActorSpec spec = Spec("a");
  spec.set_name("counter");
  Create(spec);
  ASSERT_THAT(state_.KillActor("a", true), IsOk());  // Its process still ends.
  EXPECT_THAT(FindByName("counter"), StatusIs(absl::StatusCode::kNotFound));
  spec.set_actor_id("b");
  Create(spec);
  EXPECT_EQ(FindByName("counter")->actor_id(), "b");
  Exited("n", "a");  // The late end of the first one takes nothing away.
  EXPECT_EQ(FindByName("counter")->actor_id(), "b");
}

TEST_F(SchedulingTest, ANameStaysOverARestart) {
  AddNode("n", 4);
  v1::ActorSpec spec = Spec("a");
  spec.set_name("counter");
  spec.set_max_restarts(1);
  Create(spec);
  Exited("n", "a");
  EXPECT_EQ(FindByName("counter")->state(), v1::ACTOR_STATE_RESTARTING);
}

TEST_F(SchedulingTest, AsManyActorsAsTheLimitMayWait) {
  max_waiting_ = 2;
  RestartWith(nullptr);
  AddNode("n", 1);
  v1::ActorSpec named = Spec("a");
  named.set_name("counter");
  Create(named);  // Runs.
  Create("b");
  Create("c", 2);
  EXPECT_THAT(
      state_.CreateActor(Spec("d")),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("2 actors wait"), HasSubstr("--max_waiting"))));
  // Neither is new.
  Create("b");
  named.set_actor_id("another");
  named.set_get_if_exists(true);
  EXPECT_EQ(Create(named).actor_id(), "a");
  // Nothing is left of what was refused: its name is free.
  v1::ActorSpec refused = Spec("d");
  refused.set_name("name");
  EXPECT_THAT(state_.CreateActor(refused),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(FindByName("name"), StatusIs(absl::StatusCode::kNotFound));
  // One that runs now, or is no more, does not wait.
  Exited("n", "a");
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_STARTING);
  Create("d");
  EXPECT_THAT(state_.CreateActor(Spec("e")),
              StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_THAT(state_.KillActor("c", true), IsOk());
  Create("e");
}

}  // namespace
}  // namespace miniray
