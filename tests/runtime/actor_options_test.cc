// What users say when they create actors, end to end: where they run, what they
// are called, how they end.

#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(50);

class Probe {
 public:
  int64_t Pid() { return getpid(); }
  std::string Node() { return ActorContext::Current()->node_id(); }
  int64_t Restarts() { return ActorContext::Current()->num_restarts(); }
};
MINIRAY_ACTOR(Probe, Constructor<>, &Probe::Pid, &Probe::Node,
              &Probe::Restarts);

class Other {
 public:
  int64_t Pid() { return getpid(); }
};
MINIRAY_ACTOR(Other, Constructor<>, &Other::Pid);

// Two nodes with a label each: zone=a and zone=b.
TestCluster::Options TwoZones() {
  TestCluster::Options options;
  options.node_cpus = {4, 1};
  options.head.infeasible_timeout = absl::Milliseconds(300);
  options.configure_node = [zone = 'a'](WorkerDaemon::Options* node) mutable {
    node->labels["zone"] = std::string(1, zone++);
  };
  return options;
}

TEST(ActorOptionsTest, LabelsAndNodesSayWhereAnActorRuns) {
  TestCluster cluster(TwoZones());
  Cluster driver = cluster.Connect();
  const std::string a = cluster.daemon(0).node_id();
  const std::string b = cluster.daemon(1).node_id();
  auto by_label = driver.CreateActor<Probe>({.node_labels = {{"zone", "b"}}});
  ASSERT_THAT(by_label, IsOk());
  EXPECT_THAT(by_label->Call<&Probe::Node>().Get(kLong), IsOkAndHolds(b));
  // The node is full: a wish is not kept, a condition is waited for.
  auto hard = driver.CreateActor<Probe>({.node_id = b});
  EXPECT_THAT(hard->WaitReady(absl::Milliseconds(100)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("all of it is in use")));
  ASSERT_THAT(by_label->Kill(), IsOk());
  EXPECT_THAT(hard->Call<&Probe::Node>().Get(kLong), IsOkAndHolds(b));
  auto by_id = driver.CreateActor<Probe>({.node_id = a});
  EXPECT_THAT(by_id->Call<&Probe::Node>().Get(kLong), IsOkAndHolds(a));
  auto soft = driver.CreateActor<Probe>(
      {.resources = {.cpu = 2}, .node_id = b, .soft_affinity = true});
  EXPECT_THAT(soft->Call<&Probe::Node>().Get(kLong), IsOkAndHolds(a));
  // What no node can be.
  auto nowhere = driver.CreateActor<Probe>({.node_labels = {{"zone", "c"}}});
  EXPECT_THAT(nowhere->Call<&Probe::Pid>().Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("cannot be placed"), HasSubstr("zone=c"),
                             HasSubstr("zone=b"))));
}

TEST(ActorOptionsTest, SoftAffinityLeavesANodeThatIsLost) {
  TestCluster cluster(TwoZones());
  Cluster driver = cluster.Connect();
  const std::string b = cluster.daemon(1).node_id();
  auto soft = driver.CreateActor<Probe>({.max_restarts = -1,
                                         .max_retries = -1,
                                         .node_id = b,
                                         .soft_affinity = true});
  EXPECT_THAT(soft->Call<&Probe::Node>().Get(kLong), IsOkAndHolds(b));
  cluster.StopDaemon(1);
  EXPECT_THAT(soft->Call<&Probe::Node>().Get(kLong),
              IsOkAndHolds(cluster.daemon(0).node_id()));
}

TEST(ActorOptionsTest, ANodeThatIsStoppedCostsItsActorsOneRestart) {
  TestCluster cluster(TwoZones());
  Cluster driver = cluster.Connect();
  const std::string b = cluster.daemon(1).node_id();
  // It would like to start again where it was.
  auto probe = driver.CreateActor<Probe>({.max_restarts = 1,
                                          .max_retries = -1,
                                          .node_id = b,
                                          .soft_affinity = true});
  EXPECT_THAT(probe->Call<&Probe::Node>().Get(kLong), IsOkAndHolds(b));
  cluster.StopDaemon(1);
  EXPECT_THAT(probe->Call<&Probe::Restarts>().Get(kLong), IsOkAndHolds(1));
  EXPECT_THAT(probe->Call<&Probe::Node>().Get(kLong),
              IsOkAndHolds(cluster.daemon(0).node_id()));
}

TEST(ActorOptionsTest, GetIfExistsMakesOneActorOfMany) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  Cluster other = cluster.Connect();
  const ActorOptions options = {
      .name = "shared", .resources = {.cpu = 0}, .get_if_exists = true};
  std::set<std::string> ids;
  std::set<int64_t> pids;
  for (const Cluster& from : {driver, other, driver}) {
    auto probe = from.CreateActor<Probe>(options);
    ASSERT_THAT(probe, IsOk());
    ids.insert(probe->actor_id());
    auto pid = probe->Call<&Probe::Pid>().Get(kLong);
    ASSERT_THAT(pid, IsOk());
    pids.insert(*pid);
  }
  EXPECT_EQ(ids.size(), 1);
  EXPECT_EQ(pids.size(), 1);
  EXPECT_THAT(driver.CreateActor<Other>(options),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("shared")));
  ActorOptions strict = options;
  strict.get_if_exists = false;
  EXPECT_THAT(driver.CreateActor<Probe>(strict),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("shared")));
}

TEST(ActorOptionsTest, NamespacesAreApart) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  Cluster other = cluster.Connect();
  auto in = [](const std::string& space, bool get_if_exists = false) {
    return ActorOptions{.name = "n",
                        .actor_namespace = space,
                        .resources = {.cpu = 0},
                        .get_if_exists = get_if_exists};
  };
  auto a = driver.CreateActor<Probe>(in("a"));
  ASSERT_THAT(a, IsOk());
  EXPECT_EQ(other.GetActor<Probe>("n", "a")->actor_id(), a->actor_id());
  for (const char* elsewhere : {"b", "", "A"}) {
    EXPECT_THAT(other.GetActor<Probe>("n", elsewhere),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("n")));
  }
  // In another one the name is free, even where one that exists would do.
  auto b = other.CreateActor<Probe>(in("b", /*get_if_exists=*/true));
  auto plain = other.CreateActor<Probe>(in(""));
  ASSERT_THAT(b, IsOk());
  ASSERT_THAT(plain, IsOk());
  EXPECT_EQ(
      (std::set<std::string>{a->actor_id(), b->actor_id(), plain->actor_id()})
          .size(),
      3);
  EXPECT_EQ(driver.CreateActor<Probe>(in("b", true))->actor_id(),
            b->actor_id());
  EXPECT_EQ(driver.GetActor<Probe>("n")->actor_id(), plain->actor_id());
  EXPECT_THAT(driver.CreateActor<Probe>(in("b")),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("'n'")));
  // The end of one frees its name, and no other.
  ASSERT_THAT(b->Kill(), IsOk());
  EXPECT_THAT(driver.GetActor<Probe>("n", "b"),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(driver.GetActor<Probe>("n", "a")->actor_id(), a->actor_id());
}

TEST(ActorOptionsTest, AKillThatAllowsRestartsEndsTheProcessAlone) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto probe =
      driver.CreateActor<Probe>({.max_restarts = 1, .max_retries = -1});
  ASSERT_THAT(probe, IsOk());
  auto pid = probe->Call<&Probe::Pid>().Get(kLong);
  ASSERT_THAT(pid, IsOk());
  ASSERT_THAT(probe->Kill(/*no_restart=*/false), IsOk());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(*pid); }));
  EXPECT_THAT(probe->Call<&Probe::Restarts>().Get(kLong), IsOkAndHolds(1));
  // No restart is left.
  pid = probe->Call<&Probe::Pid>().Get(kLong);
  ASSERT_THAT(pid, IsOk());
  ASSERT_THAT(probe->Kill(/*no_restart=*/false), IsOk());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(*pid); }));
  EXPECT_THAT(probe->Call<&Probe::Pid>().Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("killed by request (Kill)")));
}

TEST(ActorOptionsTest, AKillThatAllowsRestartsFindsNoProcessInOneThatWaits) {
  TestCluster cluster({.node_cpus = {1}});
  Cluster driver = cluster.Connect();
  auto first = driver.CreateActor<Probe>({});
  ASSERT_THAT(first->WaitReady(kLong), IsOk());
  auto waits = driver.CreateActor<Probe>({.max_restarts = -1});
  ASSERT_THAT(waits->Kill(/*no_restart=*/false), IsOk());
  ASSERT_THAT(first->Kill(), IsOk());
  EXPECT_THAT(waits->Call<&Probe::Restarts>().Get(kLong), IsOkAndHolds(0));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
