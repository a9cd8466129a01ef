// Workers get their places together, in one placement group.

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/quadratic_worker.h"
#include "train/data_parallel_trainer.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

double FreeCpus(TestCluster& cluster) {
  double sum = 0;
  const v1::GetClusterStateResponse state = cluster.head().GetState();
  for (const v1::NodeInfo& node : state.nodes()) {
    const auto it = node.available().quantity().find("CPU");
    if (it != node.available().quantity().end()) sum += it->second;
  }
  return sum;
}

// Of the placement groups that there have been, those that have not ended.
int NumGroups(TestCluster& cluster) {
  int count = 0;
  const v1::GetClusterStateResponse state = cluster.head().GetState();
  for (const v1::PlacementGroupInfo& group : state.placement_groups()) {
    if (group.state() != v1::PLACEMENT_GROUP_STATE_REMOVED) ++count;
  }
  return count;
}

// Each needs three of four CPUs. If both took two and waited for the third,
// neither would ever begin.
TEST(GangPlacementTest, TwoTrainingsTrainOneAfterTheOther) {
  TestCluster nodes({.node_cpus = {2, 2}});
  std::vector<absl::Status> statuses(2, absl::UnknownError("not trained"));
  std::vector<std::thread> threads;
  for (absl::Status& status : statuses) {
    threads.emplace_back([&nodes, &status] {
      QuadraticTrainer trainer({.num_workers = 3, .cluster = nodes.Connect()},
                               {});
      status = trainer.Train({.epochs = 2}).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_THAT(status, IsOk());
  EXPECT_TRUE(Eventually([&] { return FreeCpus(nodes) == 4; }));
  EXPECT_EQ(NumGroups(nodes), 0);
}

TEST(GangPlacementTest, WhatNoNodesCouldEverHoldEndsBeforeTheTimeout) {
  TestCluster nodes({.node_cpus = {2, 2},
                     .head = {.infeasible_timeout = absl::Milliseconds(500)}});
  TrainerOptions options = {.num_workers = 5, .cluster = nodes.Connect()};
  // Even if failures are borne.
  options.failure.max_failures = -1;
  QuadraticTrainer trainer(options, {});
  EXPECT_THAT(trainer.Train({}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("the workers have no places"),
                             HasSubstr("5 x (CPU 1)"), HasSubstr("CPU 2"),
                             HasSubstr("num_workers"))));
  EXPECT_EQ(FreeCpus(nodes), 4);
  EXPECT_EQ(NumGroups(nodes), 0);
}

TEST(GangPlacementTest, PlacementSaysHowTheWorkersLie) {
  TestCluster nodes({.node_cpus = {2, 2}});
  const Cluster cluster = nodes.Connect();
  for (const bool spread : {false, true}) {
    TrainerOptions options = {.num_workers = 2, .cluster = cluster};
    if (spread) options.placement = PlacementStrategy::kStrictSpread;
    QuadraticTrainer trainer(options, {});
    ASSERT_THAT(trainer.Train({}), IsOk());
    EXPECT_EQ(nodes.Info(trainer.workers()[0]).node_id() !=
                  nodes.Info(trainer.workers()[1]).node_id(),
              spread);
    EXPECT_EQ(NumGroups(nodes), 1);
    EXPECT_EQ(FreeCpus(nodes), 2);
    trainer.Shutdown();
    EXPECT_TRUE(Eventually([&] { return FreeCpus(nodes) == 4; }));
  }
  QuadraticTrainer three({.num_workers = 3,
                          .placement = PlacementStrategy::kStrictSpread,
                          .start_timeout = absl::Seconds(1),
                          .cluster = cluster},
                         {});
  EXPECT_THAT(three.Train({}).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("3 x (CPU 1) on different nodes")));
}

// Its workers have options of their own.
class OwnPlaceTrainer : public DataParallelTrainer<QuadraticWorker> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

 protected:
  absl::StatusOr<ActorHandle<QuadraticWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    return cluster().CreateActor<QuadraticWorker>(
        {.resources = {.cpu = 2}}, worker_id, 0.f, 4.f, 0.5f, Fault());
  }
};

TEST(GangPlacementTest, WorkersWithPlacesOfTheirOwnLeaveNothingReserved) {
  TestCluster nodes({.node_cpus = {4}});
  OwnPlaceTrainer trainer({.num_workers = 2, .cluster = nodes.Connect()});
  ASSERT_THAT(trainer.Train({}), IsOk());
  EXPECT_EQ(NumGroups(nodes), 0);
  EXPECT_EQ(FreeCpus(nodes), 0);
}

TEST(GangPlacementTest, WorkersWithoutResourcesNeedNoPlace) {
  TestCluster nodes({.node_cpus = {1}});
  QuadraticTrainer trainer({.num_workers = 2,
                            .worker_resources = {.cpu = 0},
                            .cluster = nodes.Connect()},
                           {});
  ASSERT_THAT(trainer.Train({}), IsOk());
  EXPECT_EQ(nodes.head().GetState().placement_groups_size(), 0);
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
