// Flags of a head and of a worker daemon act in real processes.

#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

class Target {
 public:
  int64_t Pid() { return getpid(); }
  // From then on a stop has to be a SIGKILL.
  void IgnoreStops() { signal(SIGTERM, SIG_IGN); }
  void Wait() {
    while (true) pause();
  }
};
MINIRAY_ACTOR(Target, Constructor<>, &Target::Pid, &Target::IgnoreStops,
              &Target::Wait);

TEST(MemoryLimitTest, BeyondItTheActorIsKilledAndItsCallerToldOfWhat) {
  // Any machine uses more.
  RealCluster real(
      {.node_flags = {"--memory_limit=0.000001", "--memory_period=20ms"}});
  Cluster driver = real.Connect();
  const auto target = driver.CreateActor<Target>({});
  ASSERT_THAT(target, IsOk());
  const absl::Status status = target->Call<&Target::Wait>().Get(kPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("killed for memory: used "), HasSubstr(" of ")));
}

TEST(MemoryLimitTest, NoughtKillsNothing) {
  RealCluster real(
      {.node_flags = {"--memory_limit=0", "--memory_period=10ms"}});
  Cluster driver = real.Connect();
  const auto target = driver.CreateActor<Target>({});
  ASSERT_THAT(target, IsOk());
  const auto pid = target->Call<&Target::Pid>().Get(kPatience);
  ASSERT_THAT(pid, IsOk());
  const ObjectRef<void> waiting = target->Call<&Target::Wait>();
  // A hundred looks at the memory.
  EXPECT_THAT(waiting.Get(absl::Seconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(ProcessLives(*pid));
}

TEST(StopGraceTest, AnActorHasItToEnd) {
  for (const auto& [flag, grace] :
       {std::pair("--stop_grace=100ms", absl::Milliseconds(100)),
        std::pair("--stop_grace=3s", absl::Seconds(3))}) {
    RealCluster real({.node_flags = {flag}});
    Cluster driver = real.Connect();
    auto target = driver.CreateActor<Target>({});
    ASSERT_THAT(target, IsOk());
    const auto pid = target->Call<&Target::Pid>().Get(kPatience);
    ASSERT_THAT(pid, IsOk());
    ASSERT_THAT(target->Call<&Target::IgnoreStops>().Get(kPatience), IsOk());
    const absl::Time begin = absl::Now();
    ASSERT_THAT(target->Kill(), IsOk());
    ASSERT_TRUE(Eventually([&] { return !ProcessLives(*pid); }));
    const absl::Duration took = absl::Now() - begin;
    EXPECT_GE(took, grace);
    EXPECT_LT(took, grace + absl::Seconds(2)) << flag;
  }
}

// The head tells its drivers: without the flag it is a minute.
TEST(ReconnectTimeoutTest, CallsWaitForAnActorOutOfReachAsLongAsTheHeadSays) {
  RealCluster real({.head_flags = {"--reconnect_timeout=1s"}});
  Cluster driver = real.Connect();
  const auto target = driver.CreateActor<Target>({});
  ASSERT_THAT(target, IsOk());
  ASSERT_THAT(target->WaitReady(kPatience), IsOk());
  const auto pid = static_cast<pid_t>(RealCluster::Info(driver, *target).pid());
  // It takes connections, and answers nobody.
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  const auto answer = target->Call<&Target::Pid>().Get(absl::Seconds(40));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(answer.status().message()),
              HasSubstr("could not be reached for 1"));
  kill(pid, SIGCONT);
}

// A process that lived for longer is no reason for a pause.
TEST(LongLifeTest, AProcessThatLivedSoLongRestartsAtOnce) {
  RealCluster real(
      {.head_flags = {"--long_life=0s", "--max_restart_delay=1h"}});
  Cluster driver = real.Connect();
  auto target = driver.CreateActor<Target>({.max_restarts = -1});
  ASSERT_THAT(target, IsOk());
  // The pauses would be 0, 0.1, 0.2, ... s: 51 s for the last.
  for (int i = 0; i < 11; ++i) {
    const auto pid = target->With({.max_retries = 5})
                         .Call<&Target::Pid>()
                         .Get(absl::Seconds(20));
    ASSERT_THAT(pid, IsOk()) << i;
    ASSERT_EQ(kill(static_cast<pid_t>(*pid), SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] {
      return RealCluster::Info(driver, *target).restarts() == i + 1;
    }));
  }
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
