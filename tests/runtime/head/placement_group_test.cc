// Placement groups: all bundles or none, and what becomes of them.

#include <map>
#include <set>
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

class PlacementGroupTest : public ClusterStateTest {
 protected:
  static v1::PlacementGroupSpec GroupSpec(const std::string& id,
                                          v1::PlacementStrategy strategy,
                                          const std::vector<double>& cpus) {
    v1::PlacementGroupSpec spec;
    spec.set_placement_group_id(id);
    spec.set_job_id("job");
    spec.set_strategy(strategy);
    for (const double cpu : cpus) {
      (*spec.add_bundles()->mutable_quantity())["CPU"] = cpu;
    }
    return spec;
  }

  absl::StatusOr<v1::PlacementGroupInfo> TryCreate(
      const v1::PlacementGroupSpec& spec) {
    absl::StatusOr<v1::PlacementGroupInfo> result =
        absl::UnknownError("no answer");
    state_.CreatePlacementGroup(spec, [&](auto info) { result = info; });
    return result;
  }
  v1::PlacementGroupInfo CreateGroup(const std::string& id,
                                     v1::PlacementStrategy strategy,
                                     const std::vector<double>& cpus) {
    const auto info = TryCreate(GroupSpec(id, strategy, cpus));
    EXPECT_THAT(info, IsOk());
    return info.value_or(v1::PlacementGroupInfo());
  }
  absl::Status Remove(const std::string& id) {
    absl::Status result = absl::UnknownError("no answer");
    state_.RemovePlacementGroup(id, [&](absl::Status s) { result = s; });
    return result;
  }
  v1::PlacementGroupInfo Group(const std::string& id) {
    absl::StatusOr<v1::PlacementGroupInfo> result =
        absl::UnknownError("no answer");
    v1::GetPlacementGroupRequest request;
    request.set_placement_group_id(id);
    state_.GetPlacementGroup(request, [&](auto info) { result = info; });
    EXPECT_THAT(result, IsOk());
    return result.value_or(v1::PlacementGroupInfo());
  }
  // Of each bundle.
  std::vector<std::string> NodesOf(const std::string& id) {
    std::vector<std::string> nodes;
    const v1::PlacementGroupInfo group = Group(id);
    for (const v1::BundleInfo& bundle : group.bundles()) {
      nodes.push_back(bundle.node_id());
    }
    return nodes;
  }
  v1::ActorSpec In(const std::string& group, const std::string& actor,
                   double cpus = 1) {
    v1::ActorSpec spec = Spec(actor, cpus);
    spec.set_placement_group_id(group);
    return spec;
  }
};

TEST_F(PlacementGroupTest, PackUsesOneNodeWhereItCan) {
  AddNode("a", 4);
  AddNode("b", 4);
  const v1::PlacementGroupInfo info =
      CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1, 1, 2});
  EXPECT_EQ(info.state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_THAT(NodesOf("g"), ElementsAre("a", "a", "a"));
  EXPECT_EQ(Available("a"), 0);
  EXPECT_EQ(Available("b"), 4);
}

TEST_F(PlacementGroupTest, PackSpillsOver) {
  AddNode("a", 4);
  AddNode("b", 4);
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {3, 3, 1, 1});
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Available("a"), 0);
  EXPECT_EQ(Available("b"), 0);
}

TEST_F(PlacementGroupTest, SpreadUsesAsManyNodesAsThereAre) {
  AddNode("a", 4);
  AddNode("b", 4);
  CreateGroup("g", v1::PLACEMENT_STRATEGY_SPREAD, {1, 1, 1});
  const std::vector<std::string> nodes = NodesOf("g");
  EXPECT_EQ(std::set<std::string>(nodes.begin(), nodes.end()).size(), 2);
}

TEST_F(PlacementGroupTest, StrictPackWaitsForOneNodeThatHoldsAll) {
  AddNode("a", 3);
  AddNode("b", 3);
  const v1::PlacementGroupInfo info =
      CreateGroup("g", v1::PLACEMENT_STRATEGY_STRICT_PACK, {2, 2});
  EXPECT_EQ(info.state(), v1::PLACEMENT_GROUP_STATE_PENDING);
  EXPECT_THAT(info.cause(), AllOf(HasSubstr("waits for 2 x {CPU 2}"),
                                  HasSubstr("STRICT_PACK"),
                                  HasSubstr("could never hold that")));
  EXPECT_THAT(NodesOf("g"), ElementsAre("", ""));
  EXPECT_EQ(Available("a"), 3);
  AddNode("c", 4);
  EXPECT_THAT(NodesOf("g"), ElementsAre("c", "c"));
  EXPECT_THAT(Group("g").cause(), IsEmpty());
}

TEST_F(PlacementGroupTest, StrictSpreadFindsTheOnlyWay) {
  AddNode("a", 4);
  AddNode("b", 1);
  // The small bundle must leave the large node to the large one.
  CreateGroup("g", v1::PLACEMENT_STRATEGY_STRICT_SPREAD, {1, 4});
  EXPECT_THAT(NodesOf("g"), ElementsAre("b", "a"));
  CreateGroup("h", v1::PLACEMENT_STRATEGY_STRICT_SPREAD, {0, 0, 0});
  EXPECT_EQ(Group("h").state(), v1::PLACEMENT_GROUP_STATE_PENDING);
}

TEST_F(PlacementGroupTest, ItWaitsUntilThereIsRoomForAll) {
  AddNode("a", 4);
  Create("actor", 3);
  Started("a", "actor");
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1, 1});
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_PENDING);
  EXPECT_THAT(Group("g").cause(), HasSubstr("not all of it is free"));
  EXPECT_EQ(Available("a"), 1);
  Exited("a", "actor");
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Available("a"), 2);
}

TEST_F(PlacementGroupTest, ActorsTakeFromTheirBundleAlone) {
  auto link = AddNode("a", 4);
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1, 2});
  link->Take();
  EXPECT_EQ(Available("a"), 1);
  v1::ActorSpec spec = In("g", "x", 2);
  Create(spec);
  EXPECT_EQ(StateOf("x"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(Available("a"), 1);
  EXPECT_EQ(Group("g").bundles(1).available().quantity().at("CPU"), 0);
  // The other bundle is too small, and what the node has beside does not count.
  Create(In("g", "y", 2));
  EXPECT_EQ(StateOf("y"), v1::ACTOR_STATE_PENDING);
  EXPECT_THAT(Info("y").cause(), HasSubstr("placement group g"));
  Exited("a", "x");
  EXPECT_EQ(StateOf("y"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(Available("a"), 1);
  EXPECT_THAT(link->Take(), ElementsAre("start x.0", "start y.0"));
}

TEST_F(PlacementGroupTest, AnIndexNamesTheBundle) {
  AddNode("a", 4);
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1, 1});
  for (const std::string actor : {"x", "y"}) {
    v1::ActorSpec spec = In("g", actor);
    spec.set_bundle_index(1);
    Create(spec);
  }
  EXPECT_EQ(StateOf("x"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(StateOf("y"), v1::ACTOR_STATE_PENDING);
  EXPECT_EQ(Group("g").bundles(0).available().quantity().at("CPU"), 1);
}

TEST_F(PlacementGroupTest, WhatCanNeverFitIsRefusedAtOnce) {
  AddNode("a", 4);
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1, 1});
  EXPECT_THAT(
      state_.CreateActor(In("g", "x", 2)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("asks for CPU 2"), HasSubstr("CPU 1; CPU 1"))));
  v1::ActorSpec spec = In("g", "x");
  spec.set_bundle_index(2);
  EXPECT_THAT(state_.CreateActor(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 2 bundles: there is no bundle 2")));
  spec.clear_bundle_index();
  spec.set_node_id("a");
  EXPECT_THAT(state_.CreateActor(spec),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(state_.CreateActor(In("unknown", "x")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("does not exist")));
  v1::PlacementGroupSpec bad =
      GroupSpec("bad", v1::PLACEMENT_STRATEGY_PACK, {});
  EXPECT_THAT(TryCreate(bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = GroupSpec("bad", v1::PLACEMENT_STRATEGY_UNSPECIFIED, {1});
  EXPECT_THAT(TryCreate(bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = GroupSpec("bad", v1::PLACEMENT_STRATEGY_PACK, {-1});
  EXPECT_THAT(TryCreate(bad), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(PlacementGroupTest, ARepeatedRequestFindsTheGroup) {
  AddNode("a", 4);
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1});
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1});
  EXPECT_EQ(Available("a"), 3);
}

TEST_F(PlacementGroupTest, RemovingItEndsItsActorsAndFreesItsRoom) {
  auto link = AddNode("a", 4);
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1, 2});
  v1::ActorSpec spec = In("g", "x");
  spec.set_max_restarts(-1);
  Create(spec);
  Started("a", "x");
  ASSERT_THAT(Remove("g"), IsOk());
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_REMOVED);
  EXPECT_EQ(StateOf("x"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("x").cause(),
              HasSubstr("its placement group g has ended: removed by request"));
  // Its process still has a CPU.
  EXPECT_EQ(Available("a"), 3);
  Exited("a", "x");
  EXPECT_EQ(Available("a"), 4);
  EXPECT_THAT(Remove("g"), IsOk());
  EXPECT_THAT(Remove("unknown"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(state_.CreateActor(In("g", "y")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("was removed")));
}

TEST_F(PlacementGroupTest, ItEndsWithItsDriverUnlessDetached) {
  AddNode("a", 4);
  const auto driver = Attach("job");
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1});
  v1::PlacementGroupSpec spec =
      GroupSpec("d", v1::PLACEMENT_STRATEGY_PACK, {1});
  spec.set_detached(true);
  ASSERT_THAT(TryCreate(spec), IsOk());
  state_.DriverLeft("job", driver);
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_REMOVED);
  EXPECT_EQ(Group("d").state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Available("a"), 3);
  EXPECT_THAT(TryCreate(GroupSpec("late", v1::PLACEMENT_STRATEGY_PACK, {1})),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(PlacementGroupTest, LostBundlesAreReservedElsewhereAndActorsFollow) {
  AddNode("a", 2);
  AddNode("b", 2);
  CreateGroup("g", v1::PLACEMENT_STRATEGY_STRICT_SPREAD, {2, 2});
  v1::ActorSpec spec = In("g", "x", 2);
  spec.set_bundle_index(0);
  spec.set_max_restarts(1);
  Create(spec);
  const std::string lost = NodesOf("g")[0];
  const std::string kept = NodesOf("g")[1];
  Started(lost, "x");
  state_.NodeLeft(lost);
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_RESCHEDULING);
  EXPECT_THAT(Group("g").cause(), AllOf(HasSubstr("lost the node " + lost),
                                        HasSubstr("waits for")));
  EXPECT_THAT(NodesOf("g"), ElementsAre("", kept));
  EXPECT_EQ(StateOf("x"), v1::ACTOR_STATE_RESTARTING);
  EXPECT_THAT(Info("x").cause(),
              AllOf(HasSubstr("was lost"), HasSubstr("now it waits for CPU 2"),
                    HasSubstr("which lost the node")));
  AddNode("c", 2);
  EXPECT_THAT(NodesOf("g"), ElementsAre("c", kept));
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Info("x").node_id(), "c");
  EXPECT_EQ(Available("c"), 0);
}

TEST_F(PlacementGroupTest, OneThatNoNodesCouldHoldFailsInTime) {
  AddNode("a", 4);
  CreateGroup("g", v1::PLACEMENT_STRATEGY_STRICT_SPREAD, {1, 1});
  Create(In("g", "x"));
  EXPECT_THAT(Info("x").cause(), HasSubstr("waits for CPU 1 in a bundle"));
  now_ += kInfeasible / 2;
  ASSERT_THAT(state_.RenewLease("a"), IsOk());
  state_.Tick();
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_PENDING);
  now_ += kInfeasible / 2;
  ASSERT_THAT(state_.RenewLease("a"), IsOk());
  state_.Tick();
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_REMOVED);
  EXPECT_THAT(Group("g").cause(),
              AllOf(HasSubstr("cannot be placed: it asks for 2 x {CPU 1}"),
                    HasSubstr("a) has CPU 4")));
  EXPECT_EQ(StateOf("x"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("x").cause(), HasSubstr("cannot be placed"));
}

TEST_F(PlacementGroupTest, WhoWaitsIsToldOfEveryChange) {
  CreateGroup("g", v1::PLACEMENT_STRATEGY_PACK, {1});
  v1::GetPlacementGroupRequest request;
  request.set_placement_group_id("g");
  request.set_min_version(Group("g").version() + 1);
  request.set_wait_ms(10000);
  std::vector<v1::PlacementGroupState> answers;
  const auto ask = [&] {
    state_.GetPlacementGroup(
        request, [&](auto info) { answers.push_back(info->state()); });
  };
  ask();
  EXPECT_THAT(answers, IsEmpty());
  AddNode("a", 1);
  EXPECT_THAT(answers, ElementsAre(v1::PLACEMENT_GROUP_STATE_CREATED));
  request.set_min_version(Group("g").version() + 1);
  ask();
  now_ += absl::Seconds(10);
  ASSERT_THAT(state_.RenewLease("a"), IsOk());
  state_.Tick();
  EXPECT_EQ(answers.size(), 2);
  ask();
  ASSERT_THAT(Remove("g"), IsOk());
  EXPECT_EQ(answers.back(), v1::PLACEMENT_GROUP_STATE_REMOVED);
}

}  // namespace
}  // namespace miniray
