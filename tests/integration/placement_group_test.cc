// Placement groups on real processes that are killed.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
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
  options.head_flags = {"--lease=2s", "--infeasible_timeout=2s"};
  return options;
}

constexpr absl::Duration kLong = absl::Seconds(30);

std::vector<ResourceOptions> Bundles(const std::vector<double>& cpus) {
  std::vector<ResourceOptions> bundles;
  for (const double count : cpus) bundles.push_back({.cpu = count});
  return bundles;
}

// By bundle.
std::vector<std::string> NodesOf(const PlacementGroup& group) {
  std::vector<std::string> nodes;
  const auto info = group.GetInfo();
  EXPECT_THAT(info, IsOk());
  if (!info.ok()) return nodes;
  for (const v1::BundleInfo& bundle : info->bundles()) {
    nodes.push_back(bundle.node_id());
  }
  return nodes;
}

// An actor in each bundle, which is where the bundle is.
std::vector<ActorHandle<Member>> Fill(const Cluster& cluster,
                                      const PlacementGroup& group,
                                      const ActorOptions& options = {}) {
  const std::vector<std::string> nodes = NodesOf(group);
  std::vector<ActorHandle<Member>> members;
  for (size_t i = 0; i < nodes.size(); ++i) {
    ActorOptions in_bundle = options;
    in_bundle.placement_group = group;
    in_bundle.bundle_index = static_cast<int>(i);
    auto member = cluster.CreateActor<Member>(in_bundle);
    EXPECT_THAT(member, IsOk());
    EXPECT_THAT(member->Call<&Member::Node>().Get(kLong),
                IsOkAndHolds(nodes[i]));
    members.push_back(*member);
  }
  return members;
}

size_t Distinct(const std::vector<std::string>& names) {
  return std::set<std::string>(names.begin(), names.end()).size();
}

void KillNode(RealCluster& real, const Cluster& cluster,
              const std::string& node_id) {
  for (size_t i = 0; i < 3; ++i) {
    if (NodeOf(cluster, real.node(i).pid()) == node_id) {
      real.node(i).Signal(SIGKILL);
      return;
    }
  }
  ADD_FAILURE() << "no daemon runs " << node_id;
}

// Waits until all bundles are reserved on nodes other than `lost`.
bool MovesAwayFrom(const PlacementGroup& group, const std::string& lost) {
  return Eventually(
      [&] {
        const auto info = group.GetInfo();
        return info.ok() &&
               info->state() == v1::PLACEMENT_GROUP_STATE_CREATED &&
               std::none_of(info->bundles().begin(), info->bundles().end(),
                            [&](const v1::BundleInfo& bundle) {
                              return bundle.node_id() == lost;
                            });
      },
      kLong);
}

TEST(PlacementGroupIntegrationTest, EachStrategyPutsBundlesWhereItPromises) {
  RealCluster real(ThreeNodes());
  Cluster cluster = real.Connect();
  struct Case {
    PlacementStrategy strategy;
    std::vector<double> bundles;
    size_t nodes;
  };
  for (const Case& test : std::vector<Case>{
           {PlacementStrategy::kPack, {1, 1}, 1},
           {PlacementStrategy::kPack, {1, 1, 1}, 2},
           {PlacementStrategy::kSpread, {1, 1, 1}, 3},
           {PlacementStrategy::kSpread, {1, 1, 1, 1}, 3},
           {PlacementStrategy::kStrictPack, {1, 1}, 1},
           {PlacementStrategy::kStrictSpread, {1, 1, 1}, 3},
       }) {
    SCOPED_TRACE(absl::StrCat("strategy ", static_cast<int>(test.strategy),
                              ", bundles ", test.bundles.size()));
    const auto group = cluster.CreatePlacementGroup(
        {.strategy = test.strategy, .bundles = Bundles(test.bundles)});
    ASSERT_THAT(group, IsOk());
    ASSERT_THAT(group->WaitReady(kLong), IsOk());
    EXPECT_EQ(Distinct(NodesOf(*group)), test.nodes);
    const double sum = static_cast<double>(test.bundles.size());
    EXPECT_EQ(FreeCpus(cluster), 6 - sum);
    std::vector<int64_t> pids;
    for (const auto& member : Fill(cluster, *group)) {
      pids.push_back(member.Call<&Member::Pid>().Get(kLong).value());
    }
    EXPECT_EQ(FreeCpus(cluster), 6 - sum);  // They use what is reserved.
    ASSERT_THAT(group->Remove(), IsOk());
    EXPECT_TRUE(Eventually([&] { return FreeCpus(cluster) == 6; }, kLong));
    for (const int64_t pid : pids) EXPECT_FALSE(ProcessLives(pid));
  }
}

TEST(PlacementGroupIntegrationTest, AllBundlesOrNoneAndStrictMeansStrict) {
  RealCluster real(ThreeNodes());
  Cluster cluster = real.Connect();
  // What the nodes could never hold: the other bundles take nothing meanwhile.
  struct Case {
    PlacementStrategy strategy;
    std::vector<double> bundles;
    const char* reason;
  };
  for (const Case& test : std::vector<Case>{
           {PlacementStrategy::kStrictPack, {1, 1.5}, "on one node"},
           {PlacementStrategy::kStrictSpread, {1, 1, 1, 1}, "different nodes"},
           {PlacementStrategy::kPack, {2, 2, 2, 1}, "CPU 2"},
           {PlacementStrategy::kSpread, {1, 3}, "CPU 3"},
       }) {
    const auto group = cluster.CreatePlacementGroup(
        {.strategy = test.strategy, .bundles = Bundles(test.bundles)});
    ASSERT_THAT(group, IsOk());
    EXPECT_THAT(group->WaitReady(absl::Milliseconds(50)),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         testing::HasSubstr(test.reason)));
    EXPECT_EQ(FreeCpus(cluster), 6);
    EXPECT_THAT(group->WaitReady(kLong),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         testing::AllOf(testing::HasSubstr("cannot be placed"),
                                        testing::HasSubstr(test.reason))));
  }
  // What is in use is waited for, and then taken at once. With a CPU of each
  // node taken ...
  const auto spread = cluster.CreatePlacementGroup(
      {.strategy = PlacementStrategy::kStrictSpread,
       .bundles = Bundles({1, 1, 1})});
  ASSERT_THAT(spread->WaitReady(kLong), IsOk());
  const auto pack = cluster.CreatePlacementGroup(
      {.strategy = PlacementStrategy::kStrictPack, .bundles = Bundles({1, 1})});
  EXPECT_THAT(pack->WaitReady(absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       testing::HasSubstr("it is in use")));
  EXPECT_EQ(FreeCpus(cluster), 3);
  ASSERT_THAT(spread->Remove(), IsOk());
  EXPECT_THAT(pack->WaitReady(kLong), IsOk());
  EXPECT_EQ(Distinct(NodesOf(*pack)), 1);
}

TEST(PlacementGroupIntegrationTest, BundlesThatAreTogetherMoveTogether) {
  for (const auto strategy :
       {PlacementStrategy::kPack, PlacementStrategy::kStrictPack}) {
    RealCluster real(ThreeNodes());
    Cluster cluster = real.Connect();
    const auto group = cluster.CreatePlacementGroup(
        {.strategy = strategy, .bundles = Bundles({1, 1})});
    ASSERT_THAT(group, IsOk());
    ASSERT_THAT(group->WaitReady(kLong), IsOk());
    const auto members =
        Fill(cluster, *group, {.max_restarts = 1, .max_retries = -1});
    const std::string lost = NodesOf(*group)[0];
    KillNode(real, cluster, lost);
    ASSERT_TRUE(MovesAwayFrom(*group, lost));
    const std::vector<std::string> now = NodesOf(*group);
    EXPECT_EQ(Distinct(now), 1);
    for (size_t i = 0; i < members.size(); ++i) {
      EXPECT_THAT(members[i].Call<&Member::Node>().Get(kLong),
                  IsOkAndHolds(now[i]));
      EXPECT_EQ(RealCluster::Info(cluster, members[i]).restarts(), 1);
    }
    EXPECT_EQ(FreeCpus(cluster), 2);
  }
}

// Spreading is a wish: with two nodes left, two bundles share one.
TEST(PlacementGroupIntegrationTest, ABundleThatLostItsNodeSharesAnother) {
  RealCluster real(ThreeNodes());
  Cluster cluster = real.Connect();
  const auto group = cluster.CreatePlacementGroup(
      {.strategy = PlacementStrategy::kSpread, .bundles = Bundles({1, 1, 1})});
  ASSERT_THAT(group, IsOk());
  ASSERT_THAT(group->WaitReady(kLong), IsOk());
  const auto members =
      Fill(cluster, *group, {.max_restarts = 1, .max_retries = -1});
  const std::vector<std::string> before = NodesOf(*group);
  KillNode(real, cluster, before[1]);
  ASSERT_TRUE(MovesAwayFrom(*group, before[1]));
  const std::vector<std::string> now = NodesOf(*group);
  EXPECT_EQ(now[0], before[0]);
  EXPECT_EQ(now[2], before[2]);
  EXPECT_EQ(Distinct(now), 2);
  for (size_t i = 0; i < members.size(); ++i) {
    EXPECT_THAT(members[i].Call<&Member::Node>().Get(kLong),
                IsOkAndHolds(now[i]));
    EXPECT_EQ(RealCluster::Info(cluster, members[i]).restarts(),
              i == 1 ? 1 : 0);
  }
  EXPECT_EQ(FreeCpus(cluster), 1);
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

// Nor what its actors made.
TEST(PlacementGroupIntegrationTest, AKilledDriverLeavesNoGroup) {
  RealCluster real(ThreeNodes());
  Cluster cluster = real.Connect();
  auto driver =
      real.tree().Start({BuiltProgram("tests/integration/group_program"),
                         "--address", real.address()});
  std::istringstream ready(driver->ReadLine());
  std::string word;
  std::vector<int64_t> pids(4);
  ASSERT_TRUE(ready >> word >> pids[0] >> pids[1] >> pids[2] >> pids[3]);
  ASSERT_EQ(word, "ready");
  ASSERT_EQ(State(cluster).placement_groups_size(), 1);
  EXPECT_EQ(FreeCpus(cluster), 3);
  for (const int64_t pid : pids) EXPECT_TRUE(ProcessLives(pid));
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
