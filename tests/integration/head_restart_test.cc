// The head is killed with SIGKILL in the middle of things and started again.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

class Counter {
 public:
  int64_t Add(int64_t n) { return value_ += n; }
  int64_t AddSlowly(int64_t n, double seconds) {
    absl::SleepFor(absl::Seconds(seconds));
    return value_ += n;
  }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<>, &Counter::Add, &Counter::AddSlowly);

// Small, so that many fit.
ActorOptions Small(const std::string& name = "") {
  return {.name = name, .resources = {.cpu = 0.01}};
}

RealCluster::Options Quick(int num_nodes) {
  return {.num_nodes = num_nodes,
          .head_flags = {"--lease=3s", "--driver_grace=500ms"}};
}

std::map<std::string, v1::ActorInfo> Actors(const Cluster& cluster) {
  std::map<std::string, v1::ActorInfo> actors;
  const auto state = cluster.GetState();
  EXPECT_THAT(state, IsOk());
  if (!state.ok()) return actors;
  for (const v1::ActorInfo& info : state->actors()) {
    actors[info.actor_id()] = info;
  }
  return actors;
}

TEST(HeadRestartTest, RunningCallsNeverNotice) {
  RealCluster real(Quick(1));
  Cluster driver = real.Connect();
  const auto counter = driver.CreateActor<Counter>(Small("c"));
  ASSERT_THAT(counter, IsOk());
  ASSERT_THAT(counter->WaitReady(kPatience), IsOk());
  // From here on the driver knows where it lives.
  ASSERT_THAT(counter->Call<&Counter::Add>(0).Get(kPatience), IsOkAndHolds(0));
  const v1::ActorInfo before = RealCluster::Info(driver, *counter);
  const ObjectRef<int64_t> kept =
      counter->With({.keep_result = true}).Call<&Counter::Add>(0);
  const ObjectRef<int64_t> slow = counter->Call<&Counter::AddSlowly>(1, 2.0);

  real.KillHead();
  EXPECT_THAT(kept.Get(absl::Seconds(10)), IsOkAndHolds(0));
  const ObjectRef<int64_t> without_head = counter->Call<&Counter::Add>(10);
  EXPECT_THAT(slow.Get(kPatience), IsOkAndHolds(1));
  EXPECT_THAT(without_head.Get(kPatience), IsOkAndHolds(11));

  // Asks while nobody answers yet.
  std::thread asker([&] {
    EXPECT_THAT(driver.GetActor<Counter>("c"), IsOk());
    EXPECT_THAT(driver.CreateActor<Counter>(Small("c")),
                StatusIs(absl::StatusCode::kAlreadyExists));
  });
  real.StartHead();
  asker.join();
  // Longer than a lease and the driver's grace: nobody was given up.
  const absl::Time end = absl::Now() + absl::Seconds(4);
  int64_t value = 11;
  while (absl::Now() < end) {
    EXPECT_THAT(counter->Call<&Counter::Add>(1).Get(kPatience),
                IsOkAndHolds(++value));
    absl::SleepFor(absl::Milliseconds(50));
  }
  const v1::ActorInfo after = RealCluster::Info(driver, *counter);
  EXPECT_EQ(after.state(), v1::ACTOR_STATE_ALIVE);
  EXPECT_EQ(after.pid(), before.pid());
  EXPECT_EQ(after.address(), before.address());
  EXPECT_EQ(after.restarts(), 0);
  const auto state = driver.GetState();
  ASSERT_EQ(state->nodes_size(), 1);
  EXPECT_EQ(state->nodes(0).state(), v1::NODE_STATE_ALIVE);
  ASSERT_EQ(state->jobs_size(), 1);
  EXPECT_EQ(state->jobs(0).state(), v1::JOB_STATE_RUNNING);
}

TEST(HeadRestartTest, NoAcknowledgedCreationIsLost) {
  RealCluster real(Quick(1));
  Cluster driver = real.Connect();
  std::vector<ActorHandle<Counter>> created;
  std::atomic<int> count = 0;
  std::atomic<bool> enough = false;
  std::thread creator([&] {
    while (!enough && created.size() < 60) {
      const auto actor =
          driver.CreateActor<Counter>(Small(absl::StrCat("c", count.load())));
      ASSERT_THAT(actor, IsOk());
      created.push_back(*actor);
      ++count;
    }
  });
  for (int round = 1; round <= 3; ++round) {
    EXPECT_TRUE(Eventually([&] { return count >= 4 * round; }, kPatience));
    real.KillHead();
    real.StartHead();
  }
  enough = true;
  creator.join();
  for (size_t i = 0; i < created.size(); ++i) {
    ASSERT_THAT(created[i].Call<&Counter::Add>(1).Get(kPatience),
                IsOkAndHolds(1))
        << i;
    const auto named = driver.GetActor<Counter>(absl::StrCat("c", i));
    ASSERT_THAT(named, IsOk());
    EXPECT_EQ(named->actor_id(), created[i].actor_id());
  }
  // And none that nobody asked for.
  const std::map<std::string, v1::ActorInfo> actors = Actors(driver);
  EXPECT_EQ(actors.size(), created.size());
  for (const auto& [id, info] : actors) {
    EXPECT_EQ(info.state(), v1::ACTOR_STATE_ALIVE) << info.cause();
    EXPECT_EQ(info.restarts(), 0) << info.cause();
  }
}

TEST(HeadRestartTest, ANodeThatDiedMeanwhileIsNoticed) {
  RealCluster real(Quick(2));
  Cluster driver = real.Connect();
  ActorOptions options = Small();
  options.max_restarts = 1;
  std::vector<ActorHandle<Counter>> counters;
  // So many that both nodes have some.
  options.resources.cpu = 1;
  for (int i = 0; i < 6; ++i) {
    counters.push_back(*driver.CreateActor<Counter>(options));
    ASSERT_THAT(counters.back().WaitReady(kPatience), IsOk());
  }
  real.KillHead();
  real.node(0).SignalGroup(SIGKILL);
  real.node(0).Wait();
  real.StartHead();
  // Four of them have room on the other one.
  EXPECT_TRUE(Eventually(
      [&] {
        int alive = 0;
        for (const auto& [id, info] : Actors(driver)) {
          alive += info.state() == v1::ACTOR_STATE_ALIVE ? 1 : 0;
        }
        return alive == 4;
      },
      kPatience));
  const auto state = driver.GetState();
  ASSERT_THAT(state, IsOk());
  int dead = 0;
  for (const v1::NodeInfo& node : state->nodes()) {
    dead += node.state() == v1::NODE_STATE_DEAD ? 1 : 0;
  }
  EXPECT_EQ(dead, 1);
}

TEST(HeadRestartTest, WhoWaitsForADeadHeadIsTold) {
  RealCluster real(Quick(1));
  Cluster driver = real.Connect();
  real.KillHead();
  const std::string file =
      absl::StrCat(std::getenv("TEST_TMPDIR"), "/stderr-", getpid());
  fflush(stderr);
  const int old = dup(STDERR_FILENO);
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ASSERT_GE(dup2(fd, STDERR_FILENO), 0);
  close(fd);
  absl::Status created = absl::UnknownError("");
  std::thread creator(
      [&] { created = driver.CreateActor<Counter>(Small("late")).status(); });
  const std::string expected =
      absl::StrCat("the head at ", real.address(), " does not answer; waiting");
  const bool told = Eventually(
      [&] { return absl::StrContains(ReadFile(file).value_or(""), expected); },
      absl::Seconds(15));
  dup2(old, STDERR_FILENO);
  close(old);
  EXPECT_TRUE(told);
  real.StartHead();
  creator.join();
  EXPECT_THAT(created, IsOk());
}

TEST(HeadRestartTest, AHeadThatStaysDeadForManyLeasesCostsNoActor) {
  RealCluster real({.head_flags = {"--lease=500ms", "--driver_grace=500ms"}});
  Cluster driver = real.Connect();
  const auto counter = driver.CreateActor<Counter>(Small("c"));
  ASSERT_THAT(counter, IsOk());
  ASSERT_THAT(counter->Call<&Counter::Add>(1).Get(kPatience), IsOkAndHolds(1));
  const v1::ActorInfo before = RealCluster::Info(driver, *counter);
  real.KillHead();
  int64_t value = 1;
  const absl::Time end = absl::Now() + absl::Seconds(4);  // Eight leases.
  while (absl::Now() < end) {
    ASSERT_THAT(counter->Call<&Counter::Add>(1).Get(kPatience),
                IsOkAndHolds(++value));
    absl::SleepFor(absl::Milliseconds(20));
  }
  real.StartHead();
  ASSERT_TRUE(Eventually(
      [&] {
        const auto state = driver.GetState();
        return state.ok() && state->nodes_size() == 1 &&
               state->nodes(0).state() == v1::NODE_STATE_ALIVE;
      },
      kPatience));
  const v1::ActorInfo after = RealCluster::Info(driver, *counter);
  EXPECT_EQ(after.state(), v1::ACTOR_STATE_ALIVE) << after.cause();
  EXPECT_EQ(after.pid(), before.pid());
  EXPECT_THAT(counter->Call<&Counter::Add>(1).Get(kPatience),
              IsOkAndHolds(++value));
}

TEST(HeadRestartTest, AStoppedHeadCostsOneRestartAndNoNode) {
  RealCluster real({.head_flags = {"--lease=600ms"}});
  Cluster driver = real.Connect();
  ActorOptions options = Small("c");
  options.max_restarts = 5;
  const auto counter = driver.CreateActor<Counter>(options);
  ASSERT_THAT(counter, IsOk());
  ASSERT_THAT(counter->Call<&Counter::Add>(1).Get(kPatience), IsOkAndHolds(1));
  const int64_t pid = RealCluster::Info(driver, *counter).pid();
  real.head().Signal(SIGSTOP);
  // The node cannot tell this from a cut link, and fences its actor.
  ASSERT_TRUE(Eventually([&] { return !ProcessLives(pid); }, kPatience));
  real.head().Signal(SIGCONT);
  ASSERT_TRUE(Eventually(
      [&] {
        const auto actors = Actors(driver);
        return actors.contains(counter->actor_id()) &&
               actors.at(counter->actor_id()).restarts() > 0 &&
               actors.at(counter->actor_id()).state() == v1::ACTOR_STATE_ALIVE;
      },
      kPatience));
  ASSERT_THAT(counter->WaitReady(kPatience), IsOk());
  const v1::ActorInfo after = RealCluster::Info(driver, *counter);
  EXPECT_EQ(after.restarts(), 1) << after.cause();
  EXPECT_THAT(after.cause(), HasSubstr("had no contact with the head"));
  int alive = 0;
  const auto state = driver.GetState();
  ASSERT_THAT(state, IsOk());
  for (const v1::NodeInfo& node : state->nodes()) {
    alive += node.state() == v1::NODE_STATE_DEAD ? 0 : 1;
  }
  EXPECT_EQ(alive, 1);  // The old id is not waited for.
}

TEST(HeadRestartTest, ADriverThatDiedMeanwhileIsNoticed) {
  RealCluster real(Quick(1));
  const std::string id = [&] {
    Cluster driver = real.Connect();
    const auto counter = driver.CreateActor<Counter>(Small("stays"));
    EXPECT_THAT(counter->WaitReady(kPatience), IsOk());
    real.KillHead();
    return counter->actor_id();  // Its goodbye reaches nobody.
  }();
  real.StartHead();
  Cluster other = real.Connect();
  EXPECT_EQ(Actors(other)[id].state(), v1::ACTOR_STATE_ALIVE);
  EXPECT_TRUE(Eventually(
      [&] { return Actors(other)[id].state() == v1::ACTOR_STATE_DEAD; },
      kPatience));
  EXPECT_THAT(Actors(other)[id].cause(), HasSubstr("its driver vanished"));
}

TEST(HeadRestartTest, AfterAStopInGoodOrderItIsANewCluster) {
  RealCluster real(Quick(1));
  {
    Cluster driver = real.Connect();
    ASSERT_THAT(
        driver.CreateActor<Counter>(
            {.name = "d", .resources = {.cpu = 0.01}, .detached = true}),
        IsOk());
  }
  real.head().Signal(SIGTERM);
  EXPECT_EQ(real.head().Wait(), 0);
  real.StartHead();
  Cluster driver = real.Connect();
  EXPECT_THAT(driver.GetActor<Counter>("d"),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_TRUE(Actors(driver).empty());
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
