// Actors that outlive their driver can do what the others can.

#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

constexpr absl::Duration kLong = absl::Seconds(50);

class Keeper {
 public:
  int64_t Pid() { return getpid(); }
  std::string JobId() { return ActorContext::Current()->cluster().job_id(); }
  int64_t SizeOf(const std::string& text) { return text.size(); }
  // Keeps it for Kept.
  absl::Status Put(int64_t size) {
    kept_ = ActorContext::Current()->cluster().Put(std::string(size, 'k'));
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> KeptSize() {
    MR_ASSIGN_OR_RETURN(const std::string text, kept_.Get(kLong));
    return text.size();
  }
  // Returns the process of a child.
  absl::StatusOr<int64_t> MakeChild();
  absl::Status MakeGroup() {
    MR_ASSIGN_OR_RETURN(const PlacementGroup group,
                        ActorContext::Current()->cluster().CreatePlacementGroup(
                            {.bundles = {{.cpu = 0.1}}}));
    return group.WaitReady(kLong);
  }

 private:
  ObjectRef<std::string> kept_;
};
MINIRAY_ACTOR(Keeper, Constructor<>, &Keeper::Pid, &Keeper::JobId,
              &Keeper::SizeOf, &Keeper::Put, &Keeper::KeptSize,
              &Keeper::MakeChild, &Keeper::MakeGroup);

absl::StatusOr<int64_t> Keeper::MakeChild() {
  MR_ASSIGN_OR_RETURN(const ActorHandle<Keeper> child,
                      ActorContext::Current()->cluster().CreateActor<Keeper>(
                          {.resources = {.cpu = 0}}));
  return child.Call<&Keeper::Pid>().Get(kLong);
}

TEST(DetachedActorTest, WithoutItsDriverItPutsAndCreates) {
  TestCluster cluster({.node_cpus = {1, 1}});
  {
    Cluster first = cluster.Connect();
    // One on each node.
    for (const char* name : {"one", "two"}) {
      auto keeper = first.CreateActor<Keeper>(
          {.name = name, .resources = {.cpu = 0.6}, .detached = true});
      ASSERT_THAT(keeper, IsOk());
      ASSERT_THAT(keeper->Call<&Keeper::Put>(1000).Get(kLong), IsOk());
      EXPECT_THAT(keeper->Call<&Keeper::JobId>().Get(kLong),
                  IsOkAndHolds(keeper->actor_id()));
    }
  }
  EXPECT_TRUE(Eventually([&] {
    return cluster.head().GetState().jobs(0).state() == v1::JOB_STATE_SUCCEEDED;
  }));
  Cluster second = cluster.Connect();
  auto text = second.Put(std::string(5000, 't'));
  for (const char* name : {"one", "two"}) {
    auto keeper = second.GetActor<Keeper>(name);
    ASSERT_THAT(keeper, IsOk());
    EXPECT_THAT(keeper->Call<&Keeper::SizeOf>(text).Get(kLong),
                IsOkAndHolds(5000));
    // What it put while its driver was there has not gone with the driver.
    EXPECT_THAT(keeper->Call<&Keeper::KeptSize>().Get(kLong),
                IsOkAndHolds(1000));
    EXPECT_THAT(keeper->Call<&Keeper::Put>(2000).Get(kLong), IsOk());
    EXPECT_THAT(keeper->Call<&Keeper::KeptSize>().Get(kLong),
                IsOkAndHolds(2000));
    EXPECT_THAT(keeper->Call<&Keeper::MakeGroup>().Get(kLong), IsOk());
  }
}

TEST(DetachedActorTest, WhatItCreatesAndPutsEndsWithIt) {
  TestCluster cluster({.node_cpus = {2}});
  int64_t early = 0;
  {
    Cluster first = cluster.Connect();
    auto keeper = first.CreateActor<Keeper>(
        {.name = "keeper", .resources = {.cpu = 1}, .detached = true});
    auto child = keeper->Call<&Keeper::MakeChild>().Get(kLong);
    ASSERT_THAT(child, IsOk());
    early = *child;
  }
  Cluster second = cluster.Connect();
  auto keeper = second.GetActor<Keeper>("keeper");
  ASSERT_THAT(keeper, IsOk());
  auto late = keeper->Call<&Keeper::MakeChild>().Get(kLong);
  ASSERT_THAT(late, IsOk());
  ASSERT_THAT(keeper->Call<&Keeper::MakeGroup>().Get(kLong), IsOk());
  ASSERT_THAT(keeper->Call<&Keeper::Put>(2000).Get(kLong), IsOk());
  EXPECT_EQ(cluster.daemon(0).object_stats().objects, 1);
  EXPECT_TRUE(ProcessLives(early));
  EXPECT_TRUE(ProcessLives(*late));
  ASSERT_THAT(keeper->Kill(), IsOk());
  EXPECT_TRUE(Eventually([&] {
    const v1::GetClusterStateResponse state = cluster.head().GetState();
    return !ProcessLives(early) && !ProcessLives(*late) &&
           state.placement_groups(0).state() ==
               v1::PLACEMENT_GROUP_STATE_REMOVED &&
           cluster.daemon(0).object_stats().objects == 0;
  }));
}

TEST(DetachedActorTest, InASharedProcessEachHasItsOwn) {
  TestCluster cluster({.node_cpus = {2}});
  {
    Cluster first = cluster.Connect();
    for (const char* name : {"one", "two"}) {
      auto keeper = first.CreateActor<Keeper>({.name = name,
                                               .resources = {.cpu = 0},
                                               .detached = true,
                                               .shared_process = "light"});
      EXPECT_THAT(keeper->Call<&Keeper::JobId>().Get(kLong),
                  IsOkAndHolds(keeper->actor_id()));
    }
  }
  Cluster second = cluster.Connect();
  auto one = second.GetActor<Keeper>("one");
  auto two = second.GetActor<Keeper>("two");
  EXPECT_EQ(*one->Call<&Keeper::Pid>().Get(kLong),
            *two->Call<&Keeper::Pid>().Get(kLong));
  auto child = one->Call<&Keeper::MakeChild>().Get(kLong);
  ASSERT_THAT(child, IsOk());
  EXPECT_THAT(one->Call<&Keeper::Put>(100).Get(kLong), IsOk());
  EXPECT_THAT(two->Call<&Keeper::Put>(200).Get(kLong), IsOk());
  ASSERT_THAT(two->Kill(), IsOk());
  EXPECT_TRUE(Eventually(
      [&] { return cluster.daemon(0).object_stats().objects == 1; }));
  EXPECT_THAT(one->Call<&Keeper::KeptSize>().Get(kLong), IsOkAndHolds(100));
  EXPECT_TRUE(ProcessLives(*child));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
