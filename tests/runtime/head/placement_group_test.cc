// Placement groups in ClusterState, with a clock that stands still.

#include <glog/logging.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
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
using ::testing::Not;
using ::testing::SizeIs;

constexpr auto kPack = v1::PLACEMENT_STRATEGY_PACK;
constexpr auto kSpread = v1::PLACEMENT_STRATEGY_SPREAD;
constexpr auto kStrictPack = v1::PLACEMENT_STRATEGY_STRICT_PACK;
constexpr auto kStrictSpread = v1::PLACEMENT_STRATEGY_STRICT_SPREAD;

class PlacementGroupTest : public ClusterStateTest {
 protected:
  static v1::PlacementGroupSpec GroupSpec(const std::string& id,
                                          v1::PlacementStrategy strategy,
                                          const std::vector<double>& cpus) {
    v1::PlacementGroupSpec spec;
    spec.set_placement_group_id(id);
    spec.set_job_id("job");
    spec.set_strategy(strategy);
    for (const double count : cpus) {
      (*spec.add_bundles()->mutable_quantity())["CPU"] = count;
    }
    return spec;
  }

  v1::PlacementGroupInfo CreateGroup(const std::string& id,
                                     v1::PlacementStrategy strategy,
                                     const std::vector<double>& cpus) {
    const auto info =
        state_.CreatePlacementGroup(GroupSpec(id, strategy, cpus));
    EXPECT_THAT(info, IsOk());
    return info.ok() ? *info : v1::PlacementGroupInfo();
  }

  static v1::ActorSpec InGroup(const std::string& actor,
                               const std::string& group, int bundle = -1,
                               double cpus = 1) {
    v1::ActorSpec spec = Spec(actor, cpus);
    spec.set_placement_group_id(group);
    if (bundle >= 0) spec.set_bundle_index(bundle);
    return spec;
  }

  std::vector<std::string> NodesOf(const std::string& group) {
    std::vector<std::string> nodes;
    const v1::PlacementGroupInfo info = Group(group);
    for (const v1::BundleInfo& bundle : info.bundles()) {
      nodes.push_back(bundle.node_id());
    }
    return nodes;
  }

  v1::PlacementGroupState GroupState(const std::string& group) {
    return Group(group).state();
  }
};

// --- Placing.

TEST_F(PlacementGroupTest, BundlesAreReservedAtOnceWhereThereIsRoom) {
  AddNode("n1", 4);
  AddNode("n2", 4);
  const v1::PlacementGroupInfo info = CreateGroup("g", kPack, {1, 2});
  EXPECT_EQ(info.state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(info.cause(), "");
  EXPECT_EQ(info.job_id(), "job");
  EXPECT_THAT(NodesOf("g"), ElementsAre("n1", "n1"));
  EXPECT_EQ(info.bundles(1).hostname(), "host-n1");
  EXPECT_EQ(info.bundles(1).total().quantity().at("CPU"), 2);
  EXPECT_EQ(Available("n1"), 1);
  EXPECT_EQ(Available("n2"), 4);
}

TEST_F(PlacementGroupTest, AllBundlesOrNone) {
  AddNode("n1", 2);
  AddNode("n2", 1);
  CreateGroup("g", kPack, {1, 1, 1, 1});
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_PENDING);
  EXPECT_THAT(NodesOf("g"), ElementsAre("", "", "", ""));
  EXPECT_EQ(Available("n1"), 2);
  EXPECT_EQ(Available("n2"), 1);
  EXPECT_THAT(Group("g").cause(),
              AllOf(HasSubstr("4 x (CPU 1)"), HasSubstr("host-n1 (n1) has")));
  AddNode("n3", 1);
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Available("n1") + Available("n2") + Available("n3"), 0);
}

TEST_F(PlacementGroupTest, StrategiesHold) {
  for (const char* node : {"n1", "n2", "n3"}) AddNode(node, 8);
  const auto count = [&](const char* group) {
    const auto nodes = NodesOf(group);
    return std::set<std::string>(nodes.begin(), nodes.end()).size();
  };
  CreateGroup("a", kPack, {1, 1, 1});
  EXPECT_EQ(count("a"), 1);
  CreateGroup("b", kSpread, {1, 1, 1});
  EXPECT_EQ(count("b"), 3);
  CreateGroup("c", kStrictPack, {1, 1});
  EXPECT_EQ(count("c"), 1);
  CreateGroup("d", kStrictSpread, {1, 1, 1});
  EXPECT_EQ(count("d"), 3);
  CreateGroup("e", kStrictSpread, {1, 1, 1, 1});
  EXPECT_EQ(GroupState("e"), v1::PLACEMENT_GROUP_STATE_PENDING);
  EXPECT_THAT(Group("e").cause(), HasSubstr("on different nodes"));
  CreateGroup("f", kStrictPack, {5, 5});
  EXPECT_EQ(GroupState("f"), v1::PLACEMENT_GROUP_STATE_PENDING);
  EXPECT_THAT(Group("f").cause(), HasSubstr("2 x (CPU 5) on one node"));
}

TEST_F(PlacementGroupTest, AGroupWaitsForWhatIsInUse) {
  AddNode("n", 2);
  Create("a", 2);
  CreateGroup("g", kPack, {1, 1});
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_PENDING);
  EXPECT_THAT(Group("g").cause(), HasSubstr("in use"));
  Exited("n", "a");
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Available("n"), 0);
}

TEST_F(PlacementGroupTest, ARepeatedCreateIsTheSameGroup) {
  AddNode("n", 4);
  CreateGroup("g", kPack, {1});
  CreateGroup("g", kPack, {1});
  EXPECT_EQ(state_.Snapshot().placement_groups_size(), 1);
  EXPECT_EQ(Available("n"), 3);
}

TEST_F(PlacementGroupTest, WrongRequestsAreRefused) {
  const auto refused = [&](const v1::PlacementGroupSpec& spec,
                           const char* text) {
    EXPECT_THAT(state_.CreatePlacementGroup(spec),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused(GroupSpec("", kPack, {1}), "id");
  refused(GroupSpec("g", kPack, {}), "bundles");
  refused(GroupSpec("g", kPack, std::vector<double>(1001, 1)), "1001");
  refused(GroupSpec("g", v1::PLACEMENT_STRATEGY_UNSPECIFIED, {1}), "strategy");
  refused(GroupSpec("g", static_cast<v1::PlacementStrategy>(77), {1}),
          "strategy");
  refused(GroupSpec("g", kPack, {1, -1}), "bundle 1");
  refused(GroupSpec("g", kPack, {1, 0}), "bundle 1");
  EXPECT_EQ(state_.Snapshot().placement_groups_size(), 0);
}

TEST_F(PlacementGroupTest, AnEndedJobGetsNoGroup) {
  const auto session = Attach("job");
  state_.DriverLeft("job", session);
  EXPECT_THAT(state_.CreatePlacementGroup(GroupSpec("g", kPack, {1})),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(PlacementGroupTest, WhatNobodyCanHoldFailsInTheEnd) {
  AddNode("n", 2);
  CreateGroup("g", kPack, {4});
  Create(InGroup("a", "g"));
  EXPECT_THAT(Info("a").cause(), HasSubstr("1 x (CPU 4)"));
  const auto wait = [&](absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(1)) {
      ASSERT_THAT(state_.RenewLease("n"), IsOk());
      Advance(absl::Seconds(1));
    }
  };
  wait(kInfeasible - absl::Seconds(1));
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_PENDING);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_PENDING);
  wait(absl::Seconds(1));
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_REMOVED);
  EXPECT_THAT(Group("g").cause(),
              AllOf(HasSubstr("cannot be placed"), HasSubstr("1 x (CPU 4)"),
                    HasSubstr("host-n (n) has CPU 2")));
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(),
              AllOf(HasSubstr("its placement group was removed"),
                    HasSubstr("1 x (CPU 4)")));
}

// --- Actors in groups.

TEST_F(PlacementGroupTest, ActorsTakeTheirResourcesFromTheBundles) {
  const auto link = AddNode("n", 4);
  CreateGroup("g", kPack, {1, 2});
  EXPECT_EQ(Available("n"), 1);
  Create(InGroup("a", "g", 1));
  Create(InGroup("b", "g", 1));
  Create(InGroup("c", "g"));
  EXPECT_THAT(link->Take(),
              ElementsAre("registered", "start a.0", "start b.0", "start c.0"));
  EXPECT_EQ(Available("n"), 1);
  EXPECT_EQ(Group("g").bundles(0).available().quantity().at("CPU"), 0);
  EXPECT_EQ(Group("g").bundles(1).available().quantity().at("CPU"), 0);
  EXPECT_EQ(Info("a").placement_group_id(), "g");
  // There is room on the node, but none in the group.
  Create(InGroup("d", "g"));
  EXPECT_EQ(StateOf("d"), v1::ACTOR_STATE_PENDING);
  EXPECT_THAT(Info("d").cause(),
              AllOf(HasSubstr("in a bundle of placement group g"),
                    HasSubstr("in use")));
  Exited("n", "b");
  EXPECT_EQ(StateOf("d"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(Available("n"), 1);
}

TEST_F(PlacementGroupTest, ActorsWaitForTheirGroup) {
  const auto link = AddNode("n1", 1);
  CreateGroup("g", kStrictSpread, {1, 1});
  Create(InGroup("a", "g", 0));
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_PENDING);
  EXPECT_THAT(Info("a").cause(),
              HasSubstr("in bundle 0 of placement group g, which waits"));
  AddNode("n2", 1);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(Info("a").node_id(), NodesOf("g")[0]);
}

TEST_F(PlacementGroupTest, ActorsThatCannotBeInTheGroupAreRefused) {
  AddNode("n", 4);
  CreateGroup("g", kPack, {1, 2});
  const auto refused = [&](const v1::ActorSpec& spec, const char* text) {
    EXPECT_THAT(state_.CreateActor(spec),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused(InGroup("a", "other"), "no placement group other");
  refused(InGroup("a", "g", 2), "bundle_index = 2");
  refused(InGroup("a", "g", 0, 2), "bundle 0");
  refused(InGroup("a", "g", -1, 3), "no bundle");
  v1::ActorSpec spec = Spec("a");
  spec.set_bundle_index(0);
  refused(spec, "placement group");
  spec.set_placement_group_id("g");
  spec.set_bundle_index(-1);
  refused(spec, "bundle_index = -1");
  ASSERT_THAT(state_.RemovePlacementGroup("g"), IsOk());
  EXPECT_THAT(state_.CreateActor(InGroup("a", "g")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("removed by request")));
  EXPECT_EQ(state_.Snapshot().actors_size(), 0);
}

// --- The end of groups.

TEST_F(PlacementGroupTest, RemovingKillsTheActorsAndFreesTheRoom) {
  const auto link = AddNode("n", 4);
  CreateGroup("g", kPack, {2, 2});
  v1::ActorSpec spec = InGroup("a", "g", 0);
  spec.set_max_restarts(-1);
  Create(spec);
  Started("n", "a");
  Create(InGroup("b", "g", 0, 2));  // Waits.
  Create("c", 3);                   // Waits for the node.
  link->Take();
  ASSERT_THAT(state_.RemovePlacementGroup("g"), IsOk());
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_REMOVED);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(), HasSubstr("its placement group was removed"));
  EXPECT_THAT(NodesOf("g"), ElementsAre("", ""));
  // Only the part that its process uses is not free.
  EXPECT_EQ(StateOf("c"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(Available("n"), 0);
  EXPECT_THAT(link->Take(), ElementsAre("stop a.0", "start c.0"));
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 1);
  ASSERT_THAT(state_.RemovePlacementGroup("g"), IsOk());  // Again.
  EXPECT_THAT(state_.RemovePlacementGroup("x"),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PlacementGroupTest, AGroupEndsWithItsJobUnlessDetached) {
  AddNode("n", 4);
  const auto session = Attach("job");
  CreateGroup("g", kPack, {1});
  CreateGroup("waits", kPack, {9});
  v1::PlacementGroupSpec detached = GroupSpec("d", kPack, {1});
  detached.set_detached(true);
  ASSERT_THAT(state_.CreatePlacementGroup(detached), IsOk());
  v1::ActorSpec spec = InGroup("a", "g");
  spec.set_detached(true);
  Create(spec);
  state_.DriverDisconnected("job", session);
  Advance(kGrace);
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_REMOVED);
  EXPECT_THAT(Group("g").cause(), HasSubstr("its driver vanished"));
  EXPECT_EQ(GroupState("waits"), v1::PLACEMENT_GROUP_STATE_REMOVED);
  EXPECT_EQ(GroupState("d"), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 3);
}

TEST_F(PlacementGroupTest, RemovedGroupsAreForgottenInTheEnd) {
  AddNode("n", 4);
  for (int i = 0; i < 1100; ++i) {
    const std::string id = "g" + std::to_string(i);
    CreateGroup(id, kPack, {1});
    ASSERT_THAT(state_.RemovePlacementGroup(id), IsOk());
  }
  state_.Tick();
  EXPECT_EQ(state_.Snapshot().placement_groups_size(), 1000);
  EXPECT_THAT(state_.RemovePlacementGroup("g0"),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(Available("n"), 4);
}

// --- Lost nodes.

TEST_F(PlacementGroupTest, OnlyLostBundlesArePlacedAnew) {
  AddNode("n1", 2);
  AddNode("n2", 2);
  CreateGroup("g", kStrictSpread, {1, 1});
  ASSERT_THAT(NodesOf("g"), ElementsAre("n1", "n2"));
  v1::ActorSpec spec = InGroup("a", "g", 0);
  spec.set_max_restarts(1);
  Create(spec);
  Create(InGroup("b", "g", 1));
  Started("n1", "a");
  Started("n2", "b");
  state_.NodeLeft("n1");
  // There is room on n2, but the other bundle is there.
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_RESCHEDULING);
  EXPECT_THAT(NodesOf("g"), ElementsAre("", "n2"));
  EXPECT_THAT(Group("g").cause(),
              AllOf(HasSubstr("node n1"), HasSubstr("waits for 1 x (CPU 1)")));
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_ALIVE);
  EXPECT_EQ(Available("n2"), 1);
  const auto link = AddNode("n3", 1);
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_THAT(NodesOf("g"), ElementsAre("n3", "n2"));
  EXPECT_THAT(link->Take(), ElementsAre("registered", "start a.1"));
  EXPECT_EQ(Info("a").node_id(), "n3");
  EXPECT_EQ(Available("n3"), 0);
}

TEST_F(PlacementGroupTest, AfterALossTheStrategyHoldsAgainstWhatStays) {
  AddNode("n1", 3);
  AddNode("n2", 1);
  CreateGroup("g", kPack, {1, 1, 1, 1});
  state_.NodeLeft("n2");
  AddNode("n3", 4);
  AddNode("n4", 4);
  const v1::PlacementGroupInfo info = Group("g");
  EXPECT_EQ(info.state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Available("n1"), 0);
  EXPECT_EQ(Available("n3") + Available("n4"), 7);
}

TEST_F(PlacementGroupTest, AProcessThatStillEndsOnALostNodeHoldsNothing) {
  AddNode("n1", 2);
  CreateGroup("g", kPack, {2});
  Create(InGroup("a", "g"));
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  state_.NodeLeft("n1");
  EXPECT_EQ(Available("n1"), 2);
  AddNode("n2", 2);
  EXPECT_EQ(Group("g").bundles(0).available().quantity().at("CPU"), 2);
  EXPECT_EQ(Available("n2"), 0);
}

TEST_F(PlacementGroupTest, ALostBundleThatNobodyCanHoldFailsItsActorsOnly) {
  AddNode("n1", 4);
  AddNode("n2", 1);
  CreateGroup("g", kPack, {4, 1});
  v1::ActorSpec spec = InGroup("a", "g", 0);
  spec.set_max_restarts(-1);
  Create(spec);
  Create(InGroup("b", "g", 1));
  state_.NodeLeft("n1");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  for (int i = 0; i < 4; ++i) {
    state_.RenewLease("n2").IgnoreError();
    Advance(kLease - absl::Seconds(1));
  }
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(),
              AllOf(HasSubstr("cannot be placed"), HasSubstr("1 x (CPU 4)")));
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_RESCHEDULING);
  AddNode("n3", 4);
  EXPECT_EQ(GroupState("g"), v1::PLACEMENT_GROUP_STATE_CREATED);
}

// --- The queue.

TEST_F(PlacementGroupTest, WhatFitsDoesNotWaitBehindWhatDoesNot) {
  AddNode("n", 4);
  Create("a", 2);
  CreateGroup("big", kPack, {4});
  CreateGroup("small", kPack, {1});
  EXPECT_EQ(GroupState("big"), v1::PLACEMENT_GROUP_STATE_PENDING);
  EXPECT_EQ(GroupState("small"), v1::PLACEMENT_GROUP_STATE_CREATED);
  Create("b", 1);
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_STARTING);
}

TEST_F(PlacementGroupTest, TheOldestGroupComesFirst) {
  AddNode("n", 2);
  Create("a", 2);
  CreateGroup("first", kPack, {2});
  CreateGroup("second", kPack, {2});
  Exited("n", "a");
  EXPECT_EQ(GroupState("first"), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(GroupState("second"), v1::PLACEMENT_GROUP_STATE_PENDING);
}

TEST_F(PlacementGroupTest, ALargeGroupIsNotStarvedBySmallActors) {
  AddNode("n1", 2);
  AddNode("n2", 2);
  Create("a", 1);
  Create("b", 1);
  Create("c", 1);
  Create("d", 1);
  CreateGroup("big", kStrictPack, {2});
  const auto keep = [&] {
    state_.RenewLease("n1").IgnoreError();
    state_.RenewLease("n2").IgnoreError();
  };
  // Before its patience ends, small ones go before it.
  Create("e");
  Exited(Info("a").node_id(), "a");
  EXPECT_EQ(StateOf("e"), v1::ACTOR_STATE_STARTING);
  for (int i = 0; i < 11; ++i) {
    keep();
    Advance(absl::Seconds(1));
  }
  // One node is held for it now; the other one goes on.
  Create("f");
  Create("g");
  for (const char* actor : {"b", "c", "d"}) {
    Exited(Info(actor).node_id(), actor);
  }
  Exited(Info("e").node_id(), "e");
  EXPECT_EQ(GroupState("big"), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(StateOf("f"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(StateOf("g"), v1::ACTOR_STATE_STARTING);
  EXPECT_NE(Info("f").node_id(), NodesOf("big")[0]);
}

TEST_F(PlacementGroupTest, AHeldNodeTakesNothingYoungerUntilItsGroupIsGone) {
  AddNode("n", 3);
  Create("a", 1);
  Create("b", 1);
  CreateGroup("big", kPack, {3});
  for (int i = 0; i < 11; ++i) {
    state_.RenewLease("n").IgnoreError();
    Advance(absl::Seconds(1));
  }
  Exited("n", "a");
  Create("c");
  EXPECT_EQ(StateOf("c"), v1::ACTOR_STATE_PENDING);
  CreateGroup("small", kPack, {1});
  EXPECT_EQ(GroupState("small"), v1::PLACEMENT_GROUP_STATE_PENDING);
  ASSERT_THAT(state_.RemovePlacementGroup("big"), IsOk());
  EXPECT_EQ(StateOf("c"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(GroupState("small"), v1::PLACEMENT_GROUP_STATE_CREATED);
}

TEST_F(PlacementGroupTest, NodesWithActorsThatNeverEndAreNotHeldForEver) {
  AddNode("n1", 2);
  Create("stays", 1);
  CreateGroup("big", kStrictPack, {2});
  for (int i = 0; i < 11; ++i) {
    state_.RenewLease("n1").IgnoreError();
    Advance(absl::Seconds(1));
  }
  Create("a", 1);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_PENDING);  // n1 is held.
  AddNode("n2", 1);
  EXPECT_EQ(Info("a").node_id(), "n2");
  AddNode("n3", 2);  // Room for it elsewhere: n1 is free again.
  EXPECT_THAT(NodesOf("big"), ElementsAre("n3"));
  Create("b", 1);
  EXPECT_EQ(Info("b").node_id(), "n1");
}

// Each time that nodes are held for a group is a line in the log.
class HoldLines : public google::LogSink {
 public:
  HoldLines() { google::AddLogSink(this); }
  ~HoldLines() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message,
            size_t size) override {
    const absl::string_view line(message, size);
    if (absl::StrContains(line, "nodes are held for it")) {
      lines_.emplace_back(line);
    }
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

TEST_F(PlacementGroupTest, PatienceAndHoldAreOptions) {
  std::destroy_at(&state_);
  std::construct_at(&state_,
                    ClusterState::Options{.lease = absl::Hours(1),
                                          .group_patience = absl::Seconds(3),
                                          .group_hold = absl::Seconds(5),
                                          .clock = [this] { return now_; }});
  HoldLines held;
  AddNode("n", 2);
  Create("stays", 1);
  CreateGroup("big", kPack, {2});
  const auto pass = [this](int seconds) {
    for (int i = 0; i < seconds; ++i) Advance(absl::Seconds(1));
  };
  pass(2);
  Create("a", 1);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_STARTING);
  Exited("n", "a");
  // It looks every second, or a little later.
  pass(3);
  EXPECT_THAT(held.lines(), SizeIs(1));
  Create("b", 1);
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_PENDING);
  pass(2);
  EXPECT_THAT(held.lines(), SizeIs(1));
  pass(5);
  EXPECT_THAT(held.lines(), SizeIs(2));
}

// --- Waiting for a record.

TEST_F(PlacementGroupTest, GetWaitsForAChange) {
  CreateGroup("g", kPack, {1});
  v1::GetPlacementGroupRequest request;
  request.set_placement_group_id("g");
  request.set_min_version(Group("g").version() + 1);
  request.set_wait_ms(5000);
  std::vector<v1::PlacementGroupState> answers;
  const auto note = [&](const absl::StatusOr<v1::PlacementGroupInfo>& info) {
    ASSERT_THAT(info, IsOk());
    answers.push_back(info->state());
  };
  state_.GetPlacementGroup(request, note);
  EXPECT_THAT(answers, IsEmpty());
  AddNode("n", 1);
  EXPECT_THAT(answers, ElementsAre(v1::PLACEMENT_GROUP_STATE_CREATED));
  request.set_min_version(100);
  state_.GetPlacementGroup(request, note);
  Advance(absl::Seconds(5));
  EXPECT_EQ(answers.size(), 2);
  state_.GetPlacementGroup(request, note);
  ASSERT_THAT(state_.RemovePlacementGroup("g"), IsOk());
  EXPECT_EQ(answers.back(), v1::PLACEMENT_GROUP_STATE_REMOVED);
  state_.GetPlacementGroup(request, note);  // It changes no more.
  EXPECT_EQ(answers.size(), 4);
  request.set_placement_group_id("x");
  absl::Status status;
  state_.GetPlacementGroup(request,
                           [&](const auto& info) { status = info.status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PlacementGroupTest, AsManyAsTheLimitMayWait) {
  max_waiting_ = 1;
  RestartWith(nullptr);
  CreateGroup("g", kPack, {1});
  EXPECT_THAT(state_.CreatePlacementGroup(GroupSpec("h", kPack, {1})),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("1 placement groups wait"),
                             HasSubstr("--max_waiting"))));
  CreateGroup("g", kPack, {1});  // It is not new.
  AddNode("n", 1);
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  CreateGroup("h", kPack, {1});
}

}  // namespace
}  // namespace miniray
