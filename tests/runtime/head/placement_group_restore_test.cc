// Placement groups over the death of the head.

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Lets writes fail.
class UnreliableStore : public StateStore {
 public:
  explicit UnreliableStore(std::unique_ptr<StateStore> store)
      : store_(std::move(store)) {}
  absl::Status Write(const std::vector<Change>& changes) override {
    if (full) return absl::ResourceExhaustedError("the disk is full");
    return store_->Write(changes);
  }
  absl::Status Read(
      Table table,
      const std::function<absl::Status(int64_t, absl::string_view)>& row)
      override {
    return store_->Read(table, row);
  }
  const std::string& path() const override { return store_->path(); }

  bool full = false;

 private:
  const std::unique_ptr<StateStore> store_;
};

class PlacementGroupRestoreTest : public ClusterStateTest {
 protected:
  void SetUp() override { StartHead(); }

  // What it has not written is lost.
  void StartHead() {
    head_.reset();
    store_.reset();
    auto store = StateStore::Open(folder_.path());
    ASSERT_THAT(store, IsOk());
    store_ = std::make_unique<UnreliableStore>(*std::move(store));
    head_ = std::make_unique<DirectClusterState>(
        ClusterState::Options{.lease = kLease,
                              .driver_grace = kGrace,
                              .infeasible_timeout = kInfeasible,
                              .clock = [this] { return now_; },
                              .store = store_.get()});
    ASSERT_THAT(head_->Restore(), IsOk());
  }

  std::shared_ptr<FakeLink> Join(const std::string& node, double cpus,
                                 const Live& live = {}) {
    auto link = std::make_shared<FakeLink>();
    EXPECT_THAT(head_->RegisterNode(Registration(node, cpus, live), link),
                IsOk());
    return link;
  }

  absl::StatusOr<v1::PlacementGroupInfo> CreateGroup(const std::string& id,
                                                     int bundles, double cpus) {
    v1::PlacementGroupSpec spec;
    spec.set_placement_group_id(id);
    spec.set_job_id("job");
    spec.set_strategy(v1::PLACEMENT_STRATEGY_STRICT_SPREAD);
    for (int i = 0; i < bundles; ++i) {
      (*spec.add_bundles()->mutable_quantity())["CPU"] = cpus;
    }
    return head_->CreatePlacementGroup(spec);
  }

  v1::PlacementGroupInfo Group(const std::string& id) {
    v1::GetPlacementGroupRequest request;
    request.set_placement_group_id(id);
    absl::StatusOr<v1::PlacementGroupInfo> result =
        absl::UnknownError("no answer");
    head_->GetPlacementGroup(request, [&](auto info) { result = info; });
    EXPECT_THAT(result, IsOk());
    return result.value_or(v1::PlacementGroupInfo());
  }

  double Available(const std::string& node_id) {
    const v1::GetClusterStateResponse state = head_->Snapshot();
    for (const v1::NodeInfo& node : state.nodes()) {
      if (node.node_id() == node_id) {
        return node.available().quantity().at("CPU");
      }
    }
    return -1;
  }

  // In the first bundle.
  void CreateIn(const std::string& actor, const std::string& group,
                int restarts = 0) {
    v1::ActorSpec spec = Spec(actor);
    spec.set_placement_group_id(group);
    spec.set_bundle_index(0);
    spec.set_max_restarts(restarts);
    ASSERT_THAT(head_->CreateActor(spec), IsOk());
  }

  TempFolder folder_;
  std::unique_ptr<UnreliableStore> store_;
  std::unique_ptr<DirectClusterState> head_;
};

TEST_F(PlacementGroupRestoreTest, ReservationsAndTheirUseAreKept) {
  Join("n1", 4);
  Join("n2", 4);
  ASSERT_THAT(CreateGroup("g", 2, 2), IsOk());
  CreateIn("a", "g");
  const v1::PlacementGroupInfo before = Group("g");
  StartHead();
  EXPECT_EQ(Group("g").SerializeAsString(), before.SerializeAsString());
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Group("g").bundles(0).available().quantity().at("CPU"), 1);
  EXPECT_EQ(Available("n1"), 2);
  EXPECT_EQ(Available("n2"), 2);
  const std::string node = Group("g").bundles(0).node_id();
  Join("n1", 4, {{"a", 0}});
  Join("n2", 4);
  v1::ActorExited exited;
  exited.set_actor_id("a");
  head_->ActorExited(node, exited);
  EXPECT_EQ(Group("g").bundles(0).available().quantity().at("CPU"), 2);
  EXPECT_EQ(Available("n1"), 2);
  ASSERT_THAT(head_->RemovePlacementGroup("g"), IsOk());
  EXPECT_EQ(Available("n1"), 4);
  EXPECT_EQ(Available("n2"), 4);
}

TEST_F(PlacementGroupRestoreTest, AWaitingGroupWaitsOnInItsPlace) {
  ASSERT_THAT(CreateGroup("first", 1, 2), IsOk());
  ASSERT_THAT(CreateGroup("second", 1, 2), IsOk());
  CreateIn("a", "first");
  StartHead();
  const auto link = Join("n", 2);
  EXPECT_EQ(Group("first").state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Group("second").state(), v1::PLACEMENT_GROUP_STATE_PENDING);
  EXPECT_THAT(link->Take(), ElementsAre("registered", "start a.0"));
}

TEST_F(PlacementGroupRestoreTest, ANodeThatDoesNotComeBackIsLost) {
  Join("n1", 2);
  Join("n2", 2);
  ASSERT_THAT(CreateGroup("g", 2, 2), IsOk());
  CreateIn("a", "g", -1);
  StartHead();
  Join("n2", 2);
  now_ += kLease - absl::Seconds(1);
  ASSERT_THAT(head_->RenewLease("n2"), IsOk());
  now_ += absl::Seconds(1);
  head_->Tick();
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_RESCHEDULING);
  StartHead();  // Again, in the middle of that.
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_RESCHEDULING);
  Join("n2", 2);
  const auto link = Join("n3", 2);
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Group("g").bundles(0).node_id(), "n3");
  EXPECT_THAT(link->Take(), ElementsAre("registered", "start a.1"));
}

TEST_F(PlacementGroupRestoreTest, WhatAProcessStillUsesIsTheNodes) {
  Join("n", 4);
  ASSERT_THAT(CreateGroup("g", 1, 3), IsOk());
  CreateIn("a", "g");
  ASSERT_THAT(head_->RemovePlacementGroup("g"), IsOk());
  EXPECT_EQ(Available("n"), 3);
  StartHead();
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_REMOVED);
  EXPECT_THAT(Group("g").cause(), HasSubstr("removed by request"));
  EXPECT_EQ(Available("n"), 3);
  Join("n", 4);  // Its process has ended.
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(PlacementGroupRestoreTest, AGroupThatCannotBeWrittenIsNotThere) {
  Join("n", 4);
  store_->full = true;
  EXPECT_THAT(CreateGroup("g", 1, 3),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("the disk is full")));
  EXPECT_EQ(head_->Snapshot().placement_groups_size(), 0);
  EXPECT_EQ(Available("n"), 4);
  store_->full = false;
  now_ += absl::Seconds(2);
  ASSERT_THAT(CreateGroup("g", 1, 3), IsOk());
  StartHead();
  EXPECT_EQ(Group("g").state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  EXPECT_EQ(Available("n"), 1);
}

}  // namespace
}  // namespace miniray
