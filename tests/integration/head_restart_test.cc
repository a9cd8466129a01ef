// The head is killed with SIGKILL in the middle of things and started again.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "tests/integration/process_tools.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
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

// Groups are made all the while, and jobs are on their way, whenever the head
// is killed.
TEST(HeadRestartTest, NoAcknowledgedGroupOrJobIsLost) {
  RealCluster real(Quick(1));
  Cluster driver = real.Connect();
  std::vector<PlacementGroup> groups;
  std::atomic<int> count = 0;
  std::atomic<bool> enough = false;
  std::thread creator([&] {
    while (!enough) {
      const auto group = driver.CreatePlacementGroup(
          {.bundles = {{.cpu = 0.0001}},
           .name = absl::StrCat("g", count.load())});
      ASSERT_THAT(group, IsOk());
      groups.push_back(*group);
      ++count;
    }
  });
  // Each job writes down its id where it has run.
  const std::string runs = real.tree().folder() + "/runs";
  std::map<std::string, std::unique_ptr<ProcessTree::Child>> submitters;
  auto submit = [&](const std::string& id) {
    return real.tree().Start({BuiltProgram("tools/miniray"), "submit",
                              "--no_wait", "--address", real.address(),
                              "--job_id", id, "--num_cpus=0", "--", "sh", "-c",
                              absl::StrCat("echo ", id, " >> ", runs)});
  };
  constexpr int kRounds = 3, kJobs = 4;
  for (int round = 0; round < kRounds; ++round) {
    const int before = count;
    for (int i = 0; i < kJobs; ++i) {
      const std::string id = absl::StrCat("j", round, "-", i);
      submitters[id] = submit(id);
    }
    // The first one is acknowledged; how far the others are is up to chance.
    EXPECT_EQ(submitters[absl::StrCat("j", round, "-0")]->ReadLine(),
              absl::StrCat("j", round, "-0"));
    EXPECT_TRUE(Eventually([&] { return count >= before + 4; }, kPatience));
    real.KillHead();
    real.StartHead();
  }
  enough = true;
  creator.join();
  std::vector<std::string> acknowledged;
  for (const auto& [id, submitter] : submitters) {
    if (submitter->Wait() == 0) acknowledged.push_back(id);
  }
  EXPECT_GE(acknowledged.size(), kRounds);

  v1::GetClusterStateResponse state;
  auto jobs_have_ended = [&] {
    const auto now = driver.GetState();
    if (!now.ok()) return false;
    state = *now;
    for (const v1::JobInfo& job : state.jobs()) {
      if (job.submitted() && (job.state() == v1::JOB_STATE_PENDING ||
                              job.state() == v1::JOB_STATE_RUNNING)) {
        return false;
      }
    }
    return true;
  };
  EXPECT_TRUE(Eventually(jobs_have_ended, kPatience));
  std::map<std::string, int> jobs, run;
  for (const v1::JobInfo& job : state.jobs()) {
    if (!job.submitted()) continue;
    ++jobs[job.job_id()];
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.cause();
  }
  const std::string lines = ReadFile(runs).value_or("");
  for (absl::string_view id : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    ++run[std::string(id)];
  }
  for (const std::string& id : acknowledged) {
    EXPECT_EQ(jobs[id], 1) << id;
    EXPECT_EQ(run[id], 1) << id;
  }

  std::map<std::string, int> by_id, by_name;
  for (const v1::PlacementGroupInfo& group : state.placement_groups()) {
    ++by_id[group.placement_group_id()];
    ++by_name[group.name()];
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    EXPECT_THAT(groups[i].WaitReady(kPatience), IsOk()) << i;
    EXPECT_EQ(by_id[groups[i].id()], 1) << i;
    EXPECT_EQ(by_name[absl::StrCat("g", i)], 1);
  }
  // And none that nobody asked for.
  EXPECT_EQ(by_id.size(), groups.size());
}

// By name, from another process of the same program each time.
TEST(HeadRestartTest, ADetachedActorOutlivesItsKilledDriverAndTheHead) {
  RealCluster real(Quick(1));
  const std::string sleeper = BuiltProgram("tests/integration/sleeper_program");
  auto driver = real.tree().Start(
      {sleeper, "--address", real.address(), "--actors=2", "--detached=night"});
  // The pids of each and of its child.
  const std::vector<std::string> words =
      absl::StrSplit(driver->ReadLine(), ' ');
  ASSERT_EQ(words.size(), 5);
  std::vector<int64_t> pids(5);
  for (size_t i = 1; i < words.size(); ++i) {
    ASSERT_TRUE(absl::SimpleAtoi(words[i], &pids[i])) << words[i];
  }
  driver->Signal(SIGKILL);
  driver->Wait();
  // The other one goes with it.
  EXPECT_TRUE(Eventually(
      [&] { return !ProcessLives(pids[3]) && !ProcessLives(pids[4]); },
      kPatience));
  Cluster other = real.Connect();
  EXPECT_TRUE(Eventually(
      [&] {
        const auto state = other.GetState();
        if (!state.ok()) return false;
        for (const v1::JobInfo& job : state->jobs()) {
          if (job.program() == "sleeper_program" &&
              job.state() == v1::JOB_STATE_FAILED) {
            return true;
          }
        }
        return false;
      },
      kPatience));
  auto expect_found = [&] {
    const RunResult found =
        real.tree().Run({sleeper, "--address", real.address(), "--find=night"});
    EXPECT_EQ(found.exit_code, 0) << found.err;
    EXPECT_EQ(found.out, absl::StrCat("found ", pids[1], "\n"));
  };
  expect_found();
  real.KillHead();
  EXPECT_TRUE(ProcessLives(pids[1]));
  real.StartHead();
  expect_found();
  // It has never restarted, and its child is there still.
  EXPECT_TRUE(ProcessLives(pids[2]));
  int named = 0;
  for (const auto& [id, info] : Actors(other)) {
    if (info.name() != "night") continue;
    ++named;
    EXPECT_EQ(info.state(), v1::ACTOR_STATE_ALIVE) << info.cause();
    EXPECT_EQ(info.restarts(), 0) << info.cause();
    EXPECT_EQ(info.pid(), pids[1]);
  }
  EXPECT_EQ(named, 1);
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
  // Of the minute of --reconnect_timeout, five seconds are over.
  const std::string expected = absl::StrCat("the head at ", real.address(),
                                            " does not answer; waiting 5");
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

// Without the flag it is a minute.
TEST(HeadRestartTest, WhatIsAskedOfADeadHeadWaitsAsLongAsItsFlagSays) {
  RealCluster real({.head_flags = {"--reconnect_timeout=2s"}});
  Cluster driver = real.Connect();
  const auto counter = driver.CreateActor<Counter>(Small("c"));
  ASSERT_THAT(counter, IsOk());
  const auto group = driver.CreatePlacementGroup({.bundles = {{.cpu = 0.01}}});
  ASSERT_THAT(group, IsOk());
  real.KillHead();
  const std::vector<std::pair<const char*, std::function<absl::Status()>>>
      requests = {
          {"CreateActor",
           [&] { return driver.CreateActor<Counter>(Small("d")).status(); }},
          {"GetActor", [&] { return driver.GetActor<Counter>("c").status(); }},
          {"CreatePlacementGroup",
           [&] {
             return driver.CreatePlacementGroup({.bundles = {{.cpu = 0.01}}})
                 .status();
           }},
          {"GetInfo", [&] { return group->GetInfo().status(); }},
          {"WaitReady", [&] { return group->WaitReady(); }},
          {"GetState", [&] { return driver.GetState().status(); }},
          {"Kill", [&] { return counter->Kill(); }},
          {"Remove", [&] { return group->Remove(); }}};
  std::vector<std::thread> askers;
  for (const auto& [name, ask] : requests) {
    askers.emplace_back([&real, name = name, ask = ask] {
      const absl::Time begin = absl::Now();
      EXPECT_THAT(
          ask(),
          StatusIs(absl::StatusCode::kUnavailable,
                   AllOf(HasSubstr(absl::StrCat("the head at ", real.address(),
                                                " does not answer")),
                         HasSubstr("waited for 2"),
                         HasSubstr("miniray status --address"))))
          << name;
      const absl::Duration took = absl::Now() - begin;
      EXPECT_GE(took, absl::Seconds(2)) << name;
      EXPECT_LT(took, absl::Seconds(10)) << name;
    });
  }
  for (std::thread& asker : askers) asker.join();
  // What came to nothing did not happen.
  real.StartHead();
  EXPECT_THAT(driver.GetActor<Counter>("c"), IsOk());
  EXPECT_THAT(driver.GetActor<Counter>("d"),
              StatusIs(absl::StatusCode::kNotFound));
}

// Their own time bounds those who wait for an actor or a group, not the flag.
TEST(HeadRestartTest, WhoHasLittleTimeDoesNotWaitForTheHeadBeyondIt) {
  RealCluster real;  // It would be waited for for a minute.
  Cluster driver = real.Connect();
  const auto counter = driver.CreateActor<Counter>(
      {.resources = {.cpu = 0, .custom = {{"unicorn", 1}}}});
  ASSERT_THAT(counter, IsOk());
  const auto group = driver.CreatePlacementGroup({.bundles = {{.cpu = 1e6}}});
  ASSERT_THAT(group, IsOk());
  constexpr absl::Duration kTime = absl::Milliseconds(300);
  const auto ask = [&](absl::Duration most, const std::string& state) {
    const auto in_time = [&](const auto& waits, const std::string& what) {
      const absl::Time begin = absl::Now();
      EXPECT_THAT(
          waits.WaitReady(kTime),
          StatusIs(
              absl::StatusCode::kDeadlineExceeded,
              AllOf(HasSubstr(what), HasSubstr("after 300ms: "),
                    HasSubstr(absl::StrCat("the head at ", real.address())))))
          << state;
      EXPECT_LT(absl::Now() - begin, most) << state << ": " << what;
    };
    in_time(*counter, "is not up");
    in_time(*group, "is not ready");
  };
  ASSERT_TRUE(StopProcess(real.head().pid()));
  // One that is there has 2 s for its answer.
  ask(absl::Seconds(8), "it stands still");
  real.head().Signal(SIGCONT);
  real.KillHead();
  ask(absl::Seconds(2), "it is dead");
}

// Who ends things waits less: it is mostly about to end itself.
TEST(HeadRestartTest, AKillWaitsFiveSecondsForAHeadThatStandsStill) {
  RealCluster real;
  Cluster driver = real.Connect();
  const auto counter = driver.CreateActor<Counter>(Small("c"));
  ASSERT_THAT(counter, IsOk());
  ASSERT_TRUE(StopProcess(real.head().pid()));
  const absl::Time begin = absl::Now();
  EXPECT_THAT(counter->Kill(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("does not answer"),
                             HasSubstr("miniray status --address"))));
  const absl::Duration took = absl::Now() - begin;
  EXPECT_GE(took, absl::Seconds(5));
  EXPECT_LT(took, absl::Seconds(12));
  real.head().Signal(SIGCONT);
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
