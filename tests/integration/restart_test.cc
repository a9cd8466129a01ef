// Kill with restarts left, and calls that are made, wait or run while an actor
// comes back, on a cluster of real processes. Which calls ran how often is read
// from a file, which no crash forgets.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLong = absl::Seconds(60);

// Notes what runs in `journal`, and keeps a balance.
class Clerk {
 public:
  explicit Clerk(std::string journal) : journal_(std::move(journal)) {}

  int64_t Pid() const { return getpid(); }
  int64_t Restarts() const { return ActorContext::Current()->num_restarts(); }
  int64_t Balance() const { return balance_; }
  int64_t Deposit(int64_t amount, const std::string& name) {
    Note(name);
    return balance_ += amount;
  }
  // Runs until the process is killed.
  void Hang(const std::string& name) {
    Note(name);
    while (true) pause();
  }
  void Die(const std::string& name) {
    Note(name);
    kill(getpid(), SIGKILL);
  }

  int64_t SaveState() const { return balance_; }
  void RestoreState(int64_t balance) { balance_ = balance; }

 private:
  void Note(const std::string& name) {
    std::ofstream(journal_, std::ios::app)
        << name << "@" << Restarts() << std::endl;
  }

  const std::string journal_;
  int64_t balance_ = 0;
};
MINIRAY_ACTOR(Clerk, Constructor<std::string>, &Clerk::Pid, &Clerk::Restarts,
              &Clerk::Balance, &Clerk::Deposit, &Clerk::Hang, &Clerk::Die);

class RestartTest : public ::testing::Test {
 protected:
  // Has the node's only "desk" with it.
  ActorHandle<Clerk> CreateClerk(int max_restarts) {
    auto clerk = driver_.CreateActor<Clerk>(
        {.name = "clerk",
         .resources = {.cpu = 0, .custom = {{"desk", 1}}},
         .max_restarts = max_restarts},
        journal());
    EXPECT_THAT(clerk, IsOk());
    EXPECT_THAT(clerk->WaitReady(kLong), IsOk());
    return *clerk;
  }

  // Kills the clerk's process and keeps it from coming back: another actor,
  // which waits for the desk longer, has it then. Its Kill ends that.
  ActorHandle<Clerk> HoldInRestart(const ActorHandle<Clerk>& clerk) {
    auto other = driver_.CreateActor<Clerk>(
        {.resources = {.cpu = 0, .custom = {{"desk", 1}}}}, journal());
    EXPECT_THAT(other, IsOk());
    EXPECT_EQ(other->WaitReady(absl::Milliseconds(10)).code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Kill(clerk, /*no_restart=*/false), IsOk());
    EXPECT_THAT(other->WaitReady(kLong), IsOk());
    EXPECT_EQ(Info(clerk).state(), v1::ACTOR_STATE_RESTARTING);
    return *other;
  }

  v1::ActorInfo Info(const ActorHandle<Clerk>& clerk) {
    return RealCluster::Info(driver_, clerk);
  }
  std::string journal() const { return folder_ / "journal"; }
  // "NAME@RESTARTS" of what ran, in order.
  std::vector<std::string> Ran() const {
    std::ifstream file(journal());
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const TempFolder folder_;
  RealCluster real_{{.node_flags = {"--resources=desk=1"}}};
  Cluster driver_ = real_.Connect();
};

// --- Kill.

TEST_F(RestartTest, AKillIsForGoodWhateverRestartsAreLeft) {
  const auto clerk = CreateClerk(/*max_restarts=*/-1);
  const int64_t pid = clerk.Call<&Clerk::Pid>().Get(kLong).value();
  auto running = clerk.Call<&Clerk::Hang>("running");
  auto queued =
      clerk.With({.max_retries = -1}).Call<&Clerk::Deposit>(1, "queued");
  ASSERT_TRUE(Eventually([&] { return !Ran().empty(); }));
  ASSERT_THAT(Kill(clerk), IsOk());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
  // Calls that may be retried do not wait for what never comes.
  auto later =
      clerk.With({.max_retries = -1}).Call<&Clerk::Deposit>(1, "later");
  for (const absl::Status& status :
       {running.Get(kLong), queued.Get(kLong).status(),
        later.Get(kLong).status(), clerk.WaitReady(kLong)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("killed by request (Kill)"));
  }
  EXPECT_EQ(Info(clerk).state(), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Info(clerk).restarts(), 0);
  EXPECT_THAT(Ran(), ElementsAre("running@0"));
  // Its name and its desk are free.
  EXPECT_EQ(CreateClerk(0).Call<&Clerk::Balance>().Get(kLong).value(), 0);
}

TEST_F(RestartTest, AKillThatAllowsRestartsCostsOneAndKeepsTheState) {
  const auto clerk = CreateClerk(/*max_restarts=*/2);
  EXPECT_THAT(clerk.Call<&Clerk::Deposit>(7, "a").Get(kLong), IsOkAndHolds(7));
  for (int restarts = 1; restarts <= 2; ++restarts) {
    const int64_t pid = clerk.Call<&Clerk::Pid>().Get(kLong).value();
    ASSERT_THAT(Kill(clerk, /*no_restart=*/false), IsOk());
    EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
    const auto patient = clerk.With({.max_retries = -1});
    EXPECT_THAT(patient.Call<&Clerk::Restarts>().Get(kLong),
                IsOkAndHolds(restarts));
    EXPECT_THAT(clerk.Call<&Clerk::Balance>().Get(kLong), IsOkAndHolds(7));
    EXPECT_EQ(Info(clerk).restarts(), restarts);
    EXPECT_EQ(Info(clerk).state(), v1::ACTOR_STATE_ALIVE);
    EXPECT_NE(Info(clerk).pid(), pid);
  }
  // None is left. Until its process has ended it may still answer.
  const int64_t pid = clerk.Call<&Clerk::Pid>().Get(kLong).value();
  ASSERT_THAT(Kill(clerk, /*no_restart=*/false), IsOk());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
  EXPECT_THAT(
      clerk.With({.max_retries = -1}).Call<&Clerk::Balance>().Get(kLong),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("dead"), HasSubstr("killed by request"))));
  EXPECT_EQ(Info(clerk).state(), v1::ACTOR_STATE_DEAD);
}

TEST_F(RestartTest, ACallTellsWhichProcessAnswered) {
  const auto clerk = CreateClerk(/*max_restarts=*/-1);
  const auto first = clerk.Call<&Clerk::Deposit>(7, "a");
  ASSERT_THAT(first.Get(kLong), IsOkAndHolds(7));
  EXPECT_EQ(first.state()->process(), 0);
  const auto lost = clerk.Call<&Clerk::Die>("b");
  const auto next = clerk.With({.max_retries = -1}).Call<&Clerk::Restarts>();
  ASSERT_THAT(next.Get(kLong), IsOkAndHolds(1));
  EXPECT_EQ(next.state()->process(), 1);
  // Nobody has answered this one, and an error is an answer.
  EXPECT_THAT(lost.Get(kLong), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(lost.state()->process().has_value());
  const auto refused = clerk.CallByName<void>("NoSuchMethod");
  EXPECT_THAT(refused.Get(kLong), StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(refused.state()->process(), 1);
  EXPECT_EQ(first.state()->process(), 0);
}

TEST_F(RestartTest, AKillReachesAnActorThatIsBeingRestarted) {
  const auto clerk = CreateClerk(/*max_restarts=*/-1);
  const auto other = HoldInRestart(clerk);
  auto waits = clerk.With({.max_retries = -1}).Call<&Clerk::Deposit>(1, "w");
  ASSERT_THAT(Kill(clerk), IsOk());
  EXPECT_THAT(waits.Get(kLong), StatusIs(absl::StatusCode::kUnavailable,
                                         HasSubstr("killed by request")));
  ASSERT_THAT(Kill(other), IsOk());
  EXPECT_EQ(Info(clerk).state(), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Ran(), IsEmpty());
}

// --- Calls that are made during a restart.

TEST_F(RestartTest, ACallMadeDuringARestartWaitsIfItMayAndRunsOnce) {
  const auto clerk = CreateClerk(/*max_restarts=*/3);
  EXPECT_THAT(clerk.Call<&Clerk::Deposit>(5, "before").Get(kLong),
              IsOkAndHolds(5));
  const auto other = HoldInRestart(clerk);
  // One that may not be retried is told at once ...
  EXPECT_THAT(clerk.Call<&Clerk::Deposit>(100, "hasty").Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("being restarted (restart 1 of 3)")));
  // ... the others wait for the next process, in their order.
  std::vector<ObjectRef<int64_t>> patient;
  for (int i = 0; i < 3; ++i) {
    patient.push_back(clerk.With({.max_retries = 1})
                          .Call<&Clerk::Deposit>(1, absl::StrCat("p", i)));
  }
  EXPECT_THAT(Wait(patient, 1, absl::Milliseconds(100)), IsEmpty());
  ASSERT_THAT(Kill(other), IsOk());
  const auto balances = GetAll(patient, kLong);
  ASSERT_THAT(balances, IsOk());
  EXPECT_THAT(*balances, ElementsAre(6, 7, 8));
  EXPECT_THAT(Ran(), ElementsAre("before@0", "p0@1", "p1@1", "p2@1"));
}

// --- Calls that run, or wait behind one that does, when the process dies.

TEST_F(RestartTest, ACallThatRanIsNotRunAgainUnlessItMayBe) {
  const auto clerk = CreateClerk(/*max_restarts=*/-1);
  auto running = clerk.Call<&Clerk::Hang>("running");
  auto behind = clerk.Call<&Clerk::Deposit>(100, "behind");
  auto retried =
      clerk.With({.max_retries = 1}).Call<&Clerk::Deposit>(1, "retried");
  ASSERT_TRUE(Eventually([&] { return !Ran().empty(); }));
  kill(static_cast<pid_t>(Info(clerk).pid()), SIGKILL);
  for (const absl::Status& status :
       {running.Get(kLong), behind.Get(kLong).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("SIGKILL"));
  }
  EXPECT_THAT(retried.Get(kLong), IsOkAndHolds(1));
  EXPECT_THAT(Ran(), ElementsAre("running@0", "retried@1"));
}

TEST_F(RestartTest, ACallThatMayBeRetriedRunsAsOftenAsItsRetriesSay) {
  const auto clerk = CreateClerk(/*max_restarts=*/-1);
  EXPECT_THAT(
      clerk.With({.max_retries = 2}).Call<&Clerk::Die>("die").Get(kLong),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("SIGKILL")));
  EXPECT_THAT(Ran(), ElementsAre("die@0", "die@1", "die@2"));
  // The actor itself goes on.
  EXPECT_THAT(
      clerk.With({.max_retries = -1}).Call<&Clerk::Restarts>().Get(kLong),
      IsOkAndHolds(3));
}

TEST_F(RestartTest, WhenRestartsAreUsedUpCallsFailWithTheLastCause) {
  const auto clerk = CreateClerk(/*max_restarts=*/1);
  const auto patient = clerk.With({.max_retries = -1});
  auto dies = patient.Call<&Clerk::Die>("die");
  auto behind = patient.Call<&Clerk::Deposit>(1, "behind");
  for (const absl::Status& status :
       {dies.Get(kLong), behind.Get(kLong).status(),
        patient.Call<&Clerk::Balance>().Get(kLong).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("the actor is dead"), HasSubstr("SIGKILL")));
  }
  EXPECT_THAT(Ran(), ElementsAre("die@0", "die@1"));
  EXPECT_EQ(Info(clerk).restarts(), 1);
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
