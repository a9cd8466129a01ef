// Placement groups through the API, with actors that are real processes.

#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Worker {
 public:
  int64_t Pid() { return getpid(); }
  std::string Node() { return ActorContext::Current()->node_id(); }
  // In the actor: a group belongs to its job.
  std::string MakeGroup() {
    auto group = ActorContext::Current()->cluster().CreatePlacementGroup(
        {.bundles = {{.cpu = 0.5}}, .name = "inner"});
    if (!group.ok()) return group.status().ToString();
    const absl::Status ready = group->WaitReady(absl::Seconds(10));
    return ready.ok() ? group->id() : ready.ToString();
  }
};
MINIRAY_ACTOR(Worker, Constructor<>, &Worker::Pid, &Worker::Node,
              &Worker::MakeGroup);

double FreeCpus(TestCluster& cluster) {
  double sum = 0;
  const v1::GetClusterStateResponse state = cluster.head().GetState();
  for (const v1::NodeInfo& node : state.nodes()) {
    const auto it = node.available().quantity().find("CPU");
    if (it != node.available().quantity().end()) sum += it->second;
  }
  return sum;
}

TEST(PlacementGroupApiTest, ActorsRunInTheBundlesOfTheirGroup) {
  TestCluster test_cluster({.node_cpus = {2, 2}});
  Cluster cluster = test_cluster.Connect();
  const auto group = cluster.CreatePlacementGroup(
      {.strategy = PlacementStrategy::kStrictSpread,
       .bundles = {{.cpu = 1}, {.cpu = 1}},
       .name = "pair"});
  ASSERT_THAT(group, IsOk());
  ASSERT_THAT(group->WaitReady(absl::Seconds(10)), IsOk());
  const auto info = group->GetInfo();
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->placement_group_id(), group->id());
  EXPECT_EQ(info->name(), "pair");
  EXPECT_EQ(info->job_id(), cluster.job_id());
  EXPECT_EQ(info->state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  ASSERT_EQ(info->bundles_size(), 2);
  EXPECT_NE(info->bundles(0).node_id(), info->bundles(1).node_id());
  EXPECT_EQ(FreeCpus(test_cluster), 2);

  for (int i = 0; i < 2; ++i) {
    auto worker = cluster.CreateActor<Worker>(
        {.placement_group = *group, .bundle_index = i});
    ASSERT_THAT(worker, IsOk());
    EXPECT_EQ(worker->Call<&Worker::Node>().Get(absl::Seconds(20)).value(),
              info->bundles(i).node_id());
  }
  EXPECT_EQ(FreeCpus(test_cluster), 2);  // They used what was reserved.
  // By id, and no bundle has room any more.
  auto late = cluster.CreateActor<Worker>({.placement_group = group->id()});
  ASSERT_THAT(late, IsOk());
  EXPECT_THAT(late->WaitReady(absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("in a bundle of placement group")));
}

TEST(PlacementGroupApiTest, RemovingAGroupKillsItsActorsAndSaysSo) {
  TestCluster test_cluster;
  Cluster cluster = test_cluster.Connect();
  const auto group = cluster.CreatePlacementGroup({.bundles = {{.cpu = 2}}});
  ASSERT_THAT(group, IsOk());
  auto worker = cluster.CreateActor<Worker>(
      {.max_restarts = -1, .placement_group = *group});
  ASSERT_THAT(worker, IsOk());
  const auto pid = worker->Call<&Worker::Pid>().Get(absl::Seconds(20));
  ASSERT_THAT(pid, IsOk());
  ASSERT_THAT(group->Remove(), IsOk());
  ASSERT_THAT(group->Remove(), IsOk());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(*pid); }));
  EXPECT_THAT(worker->Call<&Worker::Pid>().Get(absl::Seconds(20)),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("its placement group was removed")));
  EXPECT_TRUE(Eventually([&] { return FreeCpus(test_cluster) == 4; }));
  EXPECT_THAT(group->WaitReady(absl::Seconds(10)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("removed by request")));
  EXPECT_THAT(cluster.CreateActor<Worker>({.placement_group = *group}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(PlacementGroupApiTest, WhatIsWrongIsSaid) {
  TestCluster test_cluster;
  Cluster cluster = test_cluster.Connect();
  EXPECT_THAT(cluster.CreatePlacementGroup({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("1 to 1000 bundles")));
  EXPECT_THAT(cluster.CreatePlacementGroup({.bundles = {{.cpu = -1}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("bundle 0"), HasSubstr("CPU"))));
  EXPECT_THAT(
      cluster.CreatePlacementGroup({.bundles = {{.cpu = 1}}, .name = "\xff"}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
  EXPECT_THAT(
      cluster.CreateActor<Worker>({.bundle_index = 0}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bundle_index")));
  EXPECT_THAT(cluster.CreateActor<Worker>({.placement_group = "nowhere"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no placement group nowhere")));
}

TEST(PlacementGroupApiTest, WhatCannotBePlacedFailsWithTheReason) {
  TestCluster::Options options;
  options.head.infeasible_timeout = absl::Milliseconds(300);
  TestCluster test_cluster(options);
  Cluster cluster = test_cluster.Connect();
  const auto group =
      cluster.CreatePlacementGroup({.strategy = PlacementStrategy::kStrictPack,
                                    .bundles = {{.cpu = 3}, {.cpu = 3}}});
  ASSERT_THAT(group, IsOk());
  EXPECT_THAT(group->WaitReady(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("2 x (CPU 3) on one node")));
  EXPECT_THAT(group->WaitReady(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("cannot be placed"), HasSubstr("CPU 4"),
                             HasSubstr("2 x (CPU 3) on one node"))));
}

TEST(PlacementGroupApiTest, GroupsEndWithTheirDriverUnlessDetached) {
  TestCluster test_cluster;
  std::string detached_id;
  {
    Cluster cluster = test_cluster.Connect();
    ASSERT_THAT(cluster.CreatePlacementGroup({.bundles = {{.cpu = 1}}}),
                IsOk());
    const auto detached = cluster.CreatePlacementGroup(
        {.bundles = {{.cpu = 1}}, .detached = true});
    ASSERT_THAT(detached, IsOk());
    detached_id = detached->id();
    auto worker = cluster.CreateActor<Worker>({});
    ASSERT_THAT(worker, IsOk());
    const auto inner =
        worker->Call<&Worker::MakeGroup>().Get(absl::Seconds(20));
    ASSERT_THAT(inner, IsOk());
    EXPECT_THAT(*inner, HasSubstr("group"));
    EXPECT_EQ(FreeCpus(test_cluster), 0.5);
  }
  EXPECT_TRUE(Eventually([&] { return FreeCpus(test_cluster) == 3; }));
  Cluster other = test_cluster.Connect();
  const v1::GetClusterStateResponse state = test_cluster.head().GetState();
  ASSERT_EQ(state.placement_groups_size(), 3);
  for (const v1::PlacementGroupInfo& group : state.placement_groups()) {
    EXPECT_EQ(group.state(), group.placement_group_id() == detached_id
                                 ? v1::PLACEMENT_GROUP_STATE_CREATED
                                 : v1::PLACEMENT_GROUP_STATE_REMOVED);
  }
  auto worker = other.CreateActor<Worker>({.placement_group = detached_id});
  ASSERT_THAT(worker, IsOk());
  EXPECT_THAT(worker->Call<&Worker::Pid>().Get(absl::Seconds(20)), IsOk());
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
