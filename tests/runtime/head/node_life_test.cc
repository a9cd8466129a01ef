// Leases, breaks, returns and losses of nodes.

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
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
using ::testing::UnorderedElementsAre;

using NodeLifeTest = ClusterStateTest;

// --- Leases.

TEST_F(NodeLifeTest, ASilentNodeIsLostWhenItsLeaseEnds) {
  AddNode("n", 4);
  Create("a");
  Started("n", "a");
  Advance(kLease - absl::Milliseconds(1));
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_ALIVE);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  Advance(absl::Milliseconds(1));
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
  EXPECT_EQ(Node("n").death_cause(), "no sign of life for 10s");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Info("a").cause(),
            "node n (host-n, 10.0.0.1) was lost: no sign of life for 10s");
}

TEST_F(NodeLifeTest, RenewingKeepsIt) {
  AddNode("n", 4);
  for (int i = 0; i < 20; ++i) {
    Advance(kLease - absl::Milliseconds(1));
    ASSERT_THAT(state_.RenewLease("n"), IsOk());
  }
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_ALIVE);
}

// They are set at the head alone.
TEST_F(NodeLifeTest, ANodeIsToldThePeriodsOfTheCluster) {
  const auto told = [](ClusterState::Options options) {
    DirectClusterState state(std::move(options));
    const auto link = std::make_shared<FakeLink>();
    EXPECT_THAT(state.RegisterNode(Registration("n", 4), link), IsOk());
    return link->sent.at(0).registered();
  };
  const v1::NodeRegistered usual = told({});
  EXPECT_EQ(usual.lease_ms(), 10000);
  EXPECT_EQ(usual.periods().reconnect_timeout_ms(), 60000);
  EXPECT_EQ(usual.periods().session_life_ms(), 300000);
  EXPECT_EQ(usual.periods().max_reconnect_pause_ms(), 1000);
  const v1::NodeRegistered other =
      told({.lease = absl::Seconds(2),
            .reconnect_timeout = absl::Seconds(7),
            .session_life = absl::Minutes(2),
            .max_reconnect_pause = absl::Milliseconds(900)});
  EXPECT_EQ(other.lease_ms(), 2000);
  EXPECT_EQ(other.periods().reconnect_timeout_ms(), 7000);
  EXPECT_EQ(other.periods().session_life_ms(), 120000);
  // It is to be back before its lease ends.
  EXPECT_EQ(other.periods().max_reconnect_pause_ms(), 500);
  EXPECT_EQ(told({.max_reconnect_pause = absl::Milliseconds(300)})
                .periods()
                .max_reconnect_pause_ms(),
            300);
}

TEST_F(NodeLifeTest, RenewingForUnknownOrLostNodes) {
  EXPECT_THAT(state_.RenewLease("x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("x")));
  AddNode("n", 4);
  state_.NodeLeft("n");
  EXPECT_THAT(state_.RenewLease("n"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(NodeLifeTest, OnlyTheSilentNodeIsLost) {
  AddNode("n1", 1);
  AddNode("n2", 1);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(1);
  Create(spec);
  Create("b");
  ASSERT_EQ(Info("a").node_id(), "n1");
  ASSERT_EQ(Info("b").node_id(), "n2");
  Advance(kLease - absl::Seconds(1));
  ASSERT_THAT(state_.RenewLease("n2"), IsOk());
  Advance(absl::Seconds(1));
  EXPECT_EQ(Node("n1").state(), v1::NODE_STATE_DEAD);
  EXPECT_EQ(Node("n2").state(), v1::NODE_STATE_ALIVE);
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  Exited("n2", "b");
  EXPECT_EQ(Info("a").node_id(), "n2");
}

// --- Breaks of the stream.

TEST_F(NodeLifeTest, ABreakShortensTheLease) {
  const auto link = AddNode("n", 4);
  state_.NodeDisconnected("n", link.get());
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DISCONNECTED);
  Advance(kLease / 3 - absl::Milliseconds(1));
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DISCONNECTED);
  Advance(absl::Milliseconds(2));
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
  EXPECT_THAT(Node("n").death_cause(), HasSubstr("its connection to the head"));
}

TEST_F(NodeLifeTest, ABreakNeverLengthensTheLease) {
  const auto link = AddNode("n", 4);
  Advance(kLease - absl::Seconds(1));
  state_.NodeDisconnected("n", link.get());
  Advance(absl::Seconds(1));
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
}

// Its operator is to see why nothing starts there.
TEST_F(NodeLifeTest, ANodeThatRenewsWithoutAStreamStaysAndSaysSo) {
  const auto link = AddNode("n", 4);
  state_.NodeDisconnected("n", link.get());
  Advance(kLease / 4);
  ASSERT_THAT(state_.RenewLease("n"), IsOk());
  EXPECT_EQ(Node("n").death_cause(), "");
  for (int i = 0; i < 100; ++i) {
    Advance(kLease / 2);
    ASSERT_THAT(state_.RenewLease("n"), IsOk());
  }
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DISCONNECTED);
  EXPECT_EQ(Node("n").death_cause(),
            "it renews its lease, but has had no stream to the head since "
            "2023-11-14 22:13:20 UTC: nothing starts there; the log of its "
            "daemon says why");
  AddNode("n", 4);
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_ALIVE);
  EXPECT_EQ(Node("n").death_cause(), "");
}

TEST_F(NodeLifeTest, AStandstillOfTheHeadIsNoReasonToLoseANode) {
  const auto link = AddNode("n", 4);
  now_ += 3 * kLease;  // Nobody ran, neither did Tick.
  state_.AfterStandstill(3 * kLease);
  // Its stream did not survive it.
  state_.NodeDisconnected("n", link.get());
  Advance(kLease - absl::Milliseconds(1));
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DISCONNECTED);
  Advance(absl::Milliseconds(1));
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
}

// Its clock is what NTP or a user makes of it; how long something takes is not.
TEST_F(NodeLifeTest, AClockThatIsSetBackDelaysNothing) {
  absl::Time wall = absl::FromUnixSeconds(1800000000);
  DirectClusterState state({.lease = kLease,
                            .clock = [this] { return now_; },
                            .wall_clock = [&wall] { return wall; }});
  ASSERT_THAT(
      state.RegisterNode(Registration("n", 4), std::make_shared<FakeLink>()),
      IsOk());
  wall -= absl::Hours(1);
  ASSERT_THAT(state.CreateActor(Spec("a")), IsOk());
  now_ += kLease;
  state.Tick();
  const v1::GetClusterStateResponse tables = state.Snapshot();
  EXPECT_EQ(tables.nodes(0).state(), v1::NODE_STATE_DEAD);
  EXPECT_EQ(tables.nodes(0).start_unix_ms(), 1800000000000);
  EXPECT_EQ(tables.actors(0).state(), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(tables.actors(0).end_unix_ms(), 1799996400000);
}

TEST_F(NodeLifeTest, ADaemonThatJoinsAnewTakesItsOldNodeAway) {
  AddNode("old", 1);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(5);
  Create(spec);
  Started("old", "a");
  v1::RegisterNode request = Registration("new", 1);
  request.add_replaced_node_ids("old");
  request.add_replaced_node_ids("never registered");
  ASSERT_THAT(state_.RegisterNode(request, std::make_shared<FakeLink>()),
              IsOk());
  EXPECT_EQ(Node("old").state(), v1::NODE_STATE_DEAD);
  EXPECT_EQ(Info("a").node_id(), "new");
  EXPECT_EQ(Info("a").restarts(), 1);
  EXPECT_THAT(Info("a").cause(), HasSubstr("joined as a new node"));
}

TEST_F(NodeLifeTest, ANodeThatReturnsKeepsItsActors) {
  const auto link = AddNode("n", 4);
  Create("a");
  Started("n", "a");
  Create("b");
  state_.NodeDisconnected("n", link.get());
  Advance(absl::Seconds(2));
  const int64_t version = Info("a").version();
  const auto back = AddNode("n", 4, {{"a", 0}, {"b", 0}});
  EXPECT_THAT(back->Take(), ElementsAre("registered"));
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_ALIVE);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  EXPECT_EQ(Info("a").version(), version);
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(Available("n"), 2);
  Advance(kLease - absl::Seconds(1));
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_ALIVE);
}

TEST_F(NodeLifeTest, AStreamThatBreaksAfterItsSuccessorCameIsIgnored) {
  const auto first = AddNode("n", 4);
  const auto second = AddNode("n", 4);
  state_.NodeDisconnected("n", first.get());
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_ALIVE);
  Create("a");
  EXPECT_THAT(first->Take(), ElementsAre("registered"));
  EXPECT_THAT(second->Take(), ElementsAre("registered", "start a.0"));
  state_.NodeDisconnected("n", second.get());
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DISCONNECTED);
  state_.NodeDisconnected("unknown", second.get());
}

TEST_F(NodeLifeTest, ActorsThatTheHeadDoesNotKnowAreStopped) {
  const auto link = AddNode("n", 4, {{"x", 0}, {"y", 3}});
  EXPECT_THAT(link->StopReasons(), ElementsAre("the head does not know it",
                                               "the head does not know it"));
  EXPECT_THAT(link->Take(),
              UnorderedElementsAre("registered", "stop x.0", "stop y.3"));
}

TEST_F(NodeLifeTest, ActorsOfAnotherIncarnationOrNodeAreStopped) {
  const auto link = AddNode("n1", 1);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(-1);
  Create(spec);
  Exited("n1", "a", 0);
  Started("n1", "a", 1);
  // Back with the earlier process; the later one has ended meanwhile.
  const auto back = AddNode("n1", 1, {{"a", 0}});
  EXPECT_THAT(back->Take(), ElementsAre("registered", "stop a.0"));
  Advance(absl::Milliseconds(100));  // Its second restart in a row.
  EXPECT_THAT(back->Take(), ElementsAre("start a.2"));
  // Another node claims the actor.
  const auto other = AddNode("n2", 1, {{"a", 2}});
  EXPECT_THAT(other->Take(), ElementsAre("registered", "stop a.2"));
  EXPECT_EQ(Info("a").node_id(), "n1");
}

TEST_F(NodeLifeTest, DeadActorsThatStillRunAreStopped) {
  const auto link = AddNode("n", 4);
  Create("a");
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  const auto back = AddNode("n", 4, {{"a", 0}});
  EXPECT_THAT(back->Take(), ElementsAre("registered", "stop a.0"));
}

TEST_F(NodeLifeTest, KnownActorsThatTheNodeDoesNotListAreDead) {
  AddNode("n", 4);
  Create("a");
  Started("n", "a");
  v1::ActorSpec spec = Spec("b");
  spec.set_max_restarts(1);
  Create(spec);
  Started("n", "b");
  const auto back = AddNode("n", 4);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(), HasSubstr("cut from the head"));
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_RESTARTING);
  EXPECT_THAT(back->Take(), ElementsAre("registered", "start b.1"));
  EXPECT_EQ(Available("n"), 3);
}

// --- Losses.

TEST_F(NodeLifeTest, AStoppedDaemonTakesItsActorsWithIt) {
  const auto link = AddNode("n", 4);
  Create("a");
  v1::ActorSpec spec = Spec("b");
  spec.set_max_restarts(1);
  Create(spec);
  state_.NodeLeft("n");
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(), HasSubstr("its worker daemon was stopped"));
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_RESTARTING);
  EXPECT_EQ(Available("n"), 4);
  state_.NodeLeft("n");
  state_.NodeLeft("unknown");
  // The stream ends after the goodbye.
  state_.NodeDisconnected("n", link.get());
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
}

TEST_F(NodeLifeTest, ANodeThatWasGivenUpMayNotReturn) {
  AddNode("n", 4);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(1);
  Create(spec);
  Advance(kLease);
  const auto back = std::make_shared<FakeLink>();
  EXPECT_THAT(state_.RegisterNode(Registration("n", 4, {{"a", 0}}), back),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("gave this node up"),
                             HasSubstr("no sign of life"),
                             HasSubstr("as a new node"))));
  EXPECT_TRUE(back->sent.empty());
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  // As a new node it gets the actor again.
  EXPECT_THAT(AddNode("n-2", 4)->Take(),
              ElementsAre("registered", "start a.1"));
}

TEST_F(NodeLifeTest, MessagesFromALostNodeAreIgnored) {
  AddNode("n", 4);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(1);
  Create(spec);
  Advance(kLease);
  Started("n", "a");
  Exited("n", "a");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  EXPECT_EQ(Info("a").restarts(), 1);
}

TEST_F(NodeLifeTest, ANodesRecord) {
  v1::RegisterNode request = Registration("n", 2.5);
  request.set_hostname("box");
  request.set_address("fe80::1");
  request.set_pid(99);
  ASSERT_THAT(state_.RegisterNode(request, std::make_shared<FakeLink>()),
              IsOk());
  const v1::NodeInfo info = Node("n");
  EXPECT_EQ(info.hostname(), "box");
  EXPECT_EQ(info.address(), "fe80::1");
  EXPECT_EQ(info.pid(), 99);
  EXPECT_EQ(info.total().quantity().at("CPU"), 2.5);
  EXPECT_EQ(info.available().quantity().at("CPU"), 2.5);
}

// --- Clocks.

TEST_F(NodeLifeTest, ClocksAreAsNodesToldLast) {
  v1::RegisterNode request = Registration("n", 1);
  request.set_hostname("box");
  ASSERT_THAT(state_.RegisterNode(request, std::make_shared<FakeLink>()),
              IsOk());
  AddNode("silent", 1);
  EXPECT_THAT(state_.NodeClocks(), IsEmpty());
  v1::ClockReading clock;
  clock.set_ahead_us(-5000);
  clock.set_error_us(20);
  ASSERT_THAT(state_.RenewLease("n", &clock), IsOk());
  ASSERT_THAT(state_.RenewLease("n"), IsOk());
  ASSERT_THAT(state_.RenewLease("silent"), IsOk());
  const std::vector<v1::NodeClock> clocks = state_.NodeClocks();
  ASSERT_EQ(clocks.size(), 1);
  EXPECT_EQ(clocks[0].node_id(), "n");
  EXPECT_EQ(clocks[0].hostname(), "box");
  EXPECT_EQ(clocks[0].reading().ahead_us(), -5000);
  EXPECT_EQ(clocks[0].reading().error_us(), 20);
}

TEST_F(NodeLifeTest, AClockThatMakesNoSenseIsPassedOver) {
  AddNode("n", 1);
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const auto& [ahead, error] : std::vector<std::pair<int64_t, int64_t>>{
           {most, 1}, {-most - 1, 1}, {0, -1}, {0, most}}) {
    v1::ClockReading clock;
    clock.set_ahead_us(ahead);
    clock.set_error_us(error);
    EXPECT_THAT(state_.RenewLease("n", &clock), IsOk());
    EXPECT_THAT(state_.NodeClocks(), IsEmpty()) << ahead << " " << error;
  }
}

TEST_F(NodeLifeTest, TheClockOfALostNodeIsStillKnown) {
  AddNode("n", 1);
  v1::ClockReading clock;
  clock.set_ahead_us(7);
  ASSERT_THAT(state_.RenewLease("n", &clock), IsOk());
  Advance(kLease);
  ASSERT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
  ASSERT_EQ(state_.NodeClocks().size(), 1);
  EXPECT_EQ(state_.NodeClocks()[0].reading().ahead_us(), 7);
}

// --- Usage.

v1::ActorUsage UsageOf(const std::string& actor, int incarnation, double cpus) {
  v1::ActorUsage usage;
  usage.set_actor_id(actor);
  usage.set_incarnation(incarnation);
  usage.set_cpus(cpus);
  usage.set_memory_bytes(5);
  return usage;
}

TEST_F(NodeLifeTest, UsageIsAsNodesToldLast) {
  AddNode("n", 4);
  Create("a");
  Started("n", "a");
  AddNode("silent", 4);
  EXPECT_TRUE(state_.Usage().nodes().empty());
  v1::NodeStats stats;
  stats.set_memory_used_bytes(1);
  stats.set_memory_total_bytes(2);
  stats.set_cpus_busy(1.5);
  stats.set_cpus(8);
  stats.add_gpus()->set_busy(0.75);
  *stats.add_actors() = UsageOf("a", 0, 0.25);
  *stats.add_actors() = UsageOf("nobody", 0, 1);
  state_.NodeStats("n", stats);
  v1::GetUsageResponse usage = state_.Usage();
  ASSERT_EQ(usage.nodes_size(), 1);
  EXPECT_EQ(usage.nodes(0).node_id(), "n");
  EXPECT_EQ(usage.nodes(0).cpus_busy(), 1.5);
  EXPECT_EQ(usage.nodes(0).cpus(), 8);
  EXPECT_EQ(usage.nodes(0).memory_used_bytes(), 1);
  EXPECT_EQ(usage.nodes(0).memory_total_bytes(), 2);
  ASSERT_EQ(usage.nodes(0).gpus_size(), 1);
  EXPECT_EQ(usage.nodes(0).gpus(0).busy(), 0.75);
  ASSERT_EQ(usage.actors_size(), 1);
  EXPECT_EQ(usage.actors(0).actor_id(), "a");
  EXPECT_EQ(usage.actors(0).cpus(), 0.25);
  EXPECT_EQ(usage.actors(0).memory_bytes(), 5);
  // Of some actors alone.
  usage = state_.Usage({"nobody", "a"});
  EXPECT_EQ(usage.nodes_size(), 1);
  ASSERT_EQ(usage.actors_size(), 1);
  EXPECT_EQ(usage.actors(0).actor_id(), "a");
  usage = state_.Usage({"nobody"});
  EXPECT_EQ(usage.nodes_size(), 1);
  EXPECT_EQ(usage.actors_size(), 0);
  // Not in this message, whose turns are others'. Of GPUs it tells all.
  stats.clear_actors();
  stats.clear_gpus();
  state_.NodeStats("n", stats);
  EXPECT_EQ(state_.Usage().actors_size(), 1);
  EXPECT_EQ(state_.Usage().nodes(0).gpus_size(), 0);
  // Another node cannot tell of it.
  *stats.add_actors() = UsageOf("a", 0, 100);
  state_.NodeStats("silent", stats);
  EXPECT_EQ(state_.Usage().actors(0).cpus(), 0.25);
}

TEST_F(NodeLifeTest, WhatHasEndedUsesNothing) {
  AddNode("n", 4);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(1);
  Create(spec);
  Started("n", "a");
  v1::NodeStats stats;
  stats.set_cpus(8);
  *stats.add_actors() = UsageOf("a", 0, 0.25);
  state_.NodeStats("n", stats);
  ASSERT_EQ(state_.Usage().actors_size(), 1);
  Exited("n", "a");
  EXPECT_EQ(state_.Usage().actors_size(), 0);
  // It runs again, and what was heard was of another process.
  Started("n", "a", 1);
  ASSERT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  EXPECT_EQ(state_.Usage().actors_size(), 0);
  state_.NodeStats("n", stats);  // Late.
  EXPECT_EQ(state_.Usage().actors_size(), 0);
  stats.clear_actors();
  *stats.add_actors() = UsageOf("a", 1, 0.5);
  state_.NodeStats("n", stats);
  ASSERT_EQ(state_.Usage().actors_size(), 1);
  EXPECT_EQ(state_.Usage().actors(0).cpus(), 0.5);
  state_.NodeLeft("n");
  EXPECT_EQ(state_.Usage().nodes_size(), 0);
  EXPECT_EQ(state_.Usage().actors_size(), 0);
}

}  // namespace
}  // namespace miniray
