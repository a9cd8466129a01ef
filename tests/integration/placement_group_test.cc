// Placement groups on real processes that are killed.

#include <signal.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

class Member {
 public:
  int64_t Pid() { return getpid(); }
  std::string Node() { return ActorContext::Current()->node_id(); }
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Member, Constructor<>, &Member::Pid, &Member::Node, &Member::Add);

v1::GetClusterStateResponse State(const Cluster& cluster) {
  auto state = cluster.GetState();
  EXPECT_THAT(state, IsOk());
  return state.ok() ? *state : v1::GetClusterStateResponse();
}

// The node that this daemon runs.
std::string NodeOf(const Cluster& cluster, pid_t daemon) {
  const v1::GetClusterStateResponse state = State(cluster);
  for (const v1::NodeInfo& node : state.nodes()) {
    if (node.pid() == daemon) return node.node_id();
  }
  ADD_FAILURE() << "no node has the daemon " << daemon;
  return "";
}

double FreeCpus(const Cluster& cluster) {
  double sum = 0;
  const v1::GetClusterStateResponse state = State(cluster);
  for (const v1::NodeInfo& node : state.nodes()) {
    const auto it = node.available().quantity().find("CPU");
    if (node.state() == v1::NODE_STATE_ALIVE &&
        it != node.available().quantity().end()) {
      sum += it->second;
    }
  }
  return sum;
}

RealCluster::Options ThreeNodes() {
  RealCluster::Options options;
  options.num_nodes = 3;
  options.cpus = 2;
  options.head_flags = {"--lease=2s"};
  return options;
}

TEST(PlacementGroupIntegrationTest, ABundleMovesWhenItsNodeIsKilled) {
  RealCluster real(ThreeNodes());
  Cluster cluster = real.Connect();
  const auto group = cluster.CreatePlacementGroup(
      {.strategy = PlacementStrategy::kStrictSpread,
       .bundles = {{.cpu = 2}, {.cpu = 2}}});
  ASSERT_THAT(group, IsOk());
  ASSERT_THAT(group->WaitReady(absl::Seconds(20)), IsOk());
  std::vector<ActorHandle<Member>> members;
  for (int i = 0; i < 2; ++i) {
    auto member = cluster.CreateActor<Member>({.max_restarts = 1,
                                               .max_retries = -1,
                                               .placement_group = *group,
                                               .bundle_index = i});
    ASSERT_THAT(member, IsOk());
    ASSERT_THAT(member->Call<&Member::Add>(1).Get(absl::Seconds(30)), IsOk());
    members.push_back(*member);
  }
  const v1::PlacementGroupInfo before = group->GetInfo().value();
  for (size_t i = 0; i < 3; ++i) {
    if (NodeOf(cluster, real.node(i).pid()) != before.bundles(0).node_id()) {
      continue;
    }
    real.node(i).Signal(SIGKILL);
  }
  ASSERT_TRUE(Eventually(
      [&] {
        const v1::PlacementGroupInfo info = group->GetInfo().value();
        return info.state() == v1::PLACEMENT_GROUP_STATE_CREATED &&
               info.bundles(0).node_id() != before.bundles(0).node_id();
      },
      absl::Seconds(20)));
  const v1::PlacementGroupInfo after = group->GetInfo().value();
  EXPECT_EQ(after.bundles(1).node_id(), before.bundles(1).node_id());
  EXPECT_NE(after.bundles(0).node_id(), after.bundles(1).node_id());
  // The one that died lives again, where its bundle is now; the other one was
  // not disturbed.
  EXPECT_EQ(members[0].Call<&Member::Node>().Get(absl::Seconds(30)).value(),
            after.bundles(0).node_id());
  EXPECT_EQ(members[0].Call<&Member::Add>(1).Get(absl::Seconds(30)).value(), 1);
  EXPECT_EQ(members[1].Call<&Member::Add>(1).Get(absl::Seconds(30)).value(), 2);
}

TEST(PlacementGroupIntegrationTest, AKilledDriverLeavesNoGroup) {
  RealCluster real(ThreeNodes());
  Cluster cluster = real.Connect();
  auto driver =
      real.tree().Start({BuiltProgram("tests/integration/group_program"),
                         "--address", real.address()});
  std::istringstream ready(driver->ReadLine());
  std::string word;
  std::vector<int64_t> pids(2);
  ASSERT_TRUE(ready >> word >> pids[0] >> pids[1]);
  ASSERT_EQ(word, "ready");
  ASSERT_EQ(State(cluster).placement_groups_size(), 1);
  EXPECT_EQ(FreeCpus(cluster), 4);
  driver->Signal(SIGKILL);
  EXPECT_TRUE(
      Eventually([&] { return FreeCpus(cluster) == 6; }, absl::Seconds(20)));
  EXPECT_EQ(State(cluster).placement_groups(0).state(),
            v1::PLACEMENT_GROUP_STATE_REMOVED);
  for (const int64_t pid : pids) {
    EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); })) << pid;
  }
}

TEST(PlacementGroupIntegrationTest, AKilledHeadStillKnowsTheGroup) {
  RealCluster real(ThreeNodes());
  Cluster cluster = real.Connect();
  const auto group = cluster.CreatePlacementGroup(
      {.strategy = PlacementStrategy::kStrictSpread,
       .bundles = {{.cpu = 2}, {.cpu = 2}, {.cpu = 2}}});
  ASSERT_THAT(group, IsOk());
  ASSERT_THAT(group->WaitReady(absl::Seconds(20)), IsOk());
  auto member = cluster.CreateActor<Member>(
      {.placement_group = *group, .bundle_index = 0});
  ASSERT_THAT(member, IsOk());
  ASSERT_EQ(member->Call<&Member::Add>(1).Get(absl::Seconds(30)).value(), 1);
  const v1::PlacementGroupInfo before = group->GetInfo().value();
  real.KillHead();
  real.StartHead();
  ASSERT_TRUE(Eventually(
      [&] {
        int alive = 0;
        const v1::GetClusterStateResponse state = State(cluster);
        for (const v1::NodeInfo& node : state.nodes()) {
          alive += node.state() == v1::NODE_STATE_ALIVE ? 1 : 0;
        }
        return alive == 3;
      },
      absl::Seconds(20)));
  EXPECT_EQ(group->GetInfo().value().SerializeAsString(),
            before.SerializeAsString());
  EXPECT_EQ(FreeCpus(cluster), 0);
  EXPECT_EQ(member->Call<&Member::Add>(1).Get(absl::Seconds(30)).value(), 2);
  // What is left of bundle 0 takes another one, and nothing else does.
  auto second = cluster.CreateActor<Member>({.placement_group = *group});
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->Call<&Member::Add>(1).Get(absl::Seconds(30)).value(), 1);
  ASSERT_THAT(group->Remove(), IsOk());
  EXPECT_TRUE(
      Eventually([&] { return FreeCpus(cluster) == 6; }, absl::Seconds(20)));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
