// GetAll, Wait, Cancel and ExitActor over several nodes, and an actor that can
// be asked how it is while it trains: on a cluster of real processes.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/actor.pb.h"
#include "runtime/api/miniray.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(100);

class Worker {
 public:
  // Until it is released (true) or cancelled (false).
  bool Train() {
    training_ = true;
    while (!released_ && !ActorContext::Current()->cancelled()) usleep(1000);
    return released_;
  }
  void Release() { released_ = true; }
  bool Training() const { return training_; }
  int64_t Steps() const { return steps_; }
  int64_t Step() { return ++steps_; }
  int64_t Pid() const { return getpid(); }
  std::string Node() const { return ActorContext::Current()->node_id(); }
  void Leave() { ExitActor(); }

 private:
  std::atomic<bool> training_ = false;
  std::atomic<bool> released_ = false;
  std::atomic<int64_t> steps_ = 0;
};
MINIRAY_ACTOR(Worker, Constructor<>, &Worker::Train, &Worker::Release,
              &Worker::Training, &Worker::Steps, &Worker::Step, &Worker::Pid,
              &Worker::Node, &Worker::Leave);

class CallsTest : public ::testing::Test {
 protected:
  // Two on each node.
  CallsTest() {
    for (int i = 0; i < 4; ++i) {
      auto worker = driver_.CreateActor<Worker>(
          {.max_restarts = 1,
           .concurrency_groups = {
               {.name = "health",
                .methods = {MethodName<&Worker::Release>(),
                            MethodName<&Worker::Training>(),
                            MethodName<&Worker::Steps>()}}}});
      EXPECT_THAT(worker, IsOk());
      workers_.push_back(*worker);
    }
    std::set<std::string> nodes;
    for (const auto& worker : workers_) {
      nodes.insert(worker.Call<&Worker::Node>().Get(kLong).value());
    }
    EXPECT_THAT(nodes, SizeIs(2));
  }

  // All train, and know it.
  std::vector<ObjectRef<bool>> TrainAll() {
    std::vector<ObjectRef<bool>> refs;
    for (const auto& worker : workers_) {
      refs.push_back(worker.Call<&Worker::Train>());
      EXPECT_TRUE(Eventually(
          [&] { return *worker.Call<&Worker::Training>().Get(kLong); }));
    }
    return refs;
  }

  RealCluster real_{{.num_nodes = 2, .cpus = 2}};
  Cluster driver_ = real_.Connect();
  std::vector<ActorHandle<Worker>> workers_;
};

TEST_F(CallsTest, WaitReturnsWhatIsDoneAndGetAllAllOrTheFirstError) {
  const std::vector<ObjectRef<bool>> refs = TrainAll();
  EXPECT_THAT(Wait(refs, 1, kShort), IsEmpty());
  EXPECT_THAT(GetAll(refs, kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  for (const int i : {3, 1}) {
    ASSERT_THAT(workers_[i].Call<&Worker::Release>().Get(kLong), IsOk());
  }
  EXPECT_THAT(Wait(refs, 2, kLong), ElementsAre(1, 3));
  EXPECT_THAT(Wait(refs, 3, kShort), ElementsAre(1, 3));
  ASSERT_THAT(workers_[0].Call<&Worker::Release>().Get(kLong), IsOk());
  EXPECT_THAT(Wait(refs, 3, kLong), ElementsAre(0, 1, 3));
  ASSERT_THAT(workers_[2].Kill(), IsOk());
  EXPECT_THAT(Wait(refs, 4, kLong), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(GetAll(refs, kLong), StatusIs(absl::StatusCode::kUnavailable,
                                            HasSubstr("killed by request")));
  EXPECT_THAT(refs[3].Get(kLong), IsOkAndHolds(true));
}

TEST_F(CallsTest, ACancelledCallNeverRunsOrSeesThatItIsCancelled) {
  const std::vector<ObjectRef<bool>> refs = TrainAll();
  for (size_t i = 0; i < workers_.size(); ++i) {
    auto wanted = workers_[i].Call<&Worker::Step>();
    auto unwanted = workers_[i].Call<&Worker::Step>();
    Cancel(unwanted);
    EXPECT_THAT(unwanted.Get(kLong), StatusIs(absl::StatusCode::kCancelled));
    EXPECT_FALSE(refs[i].ready());
    Cancel(refs[i]);
    // The result is what the method makes of it.
    EXPECT_THAT(refs[i].Get(kLong), IsOkAndHolds(false));
    EXPECT_THAT(wanted.Get(kLong), IsOkAndHolds(1));
    EXPECT_THAT(workers_[i].Call<&Worker::Steps>().Get(kLong), IsOkAndHolds(1));
    // Nothing happens to what is done.
    Cancel(wanted);
    EXPECT_THAT(wanted.Get(kLong), IsOkAndHolds(1));
  }
}

TEST_F(CallsTest, AnActorThatEndsItselfIsGoneThoughItHadRestarts) {
  const ActorHandle<Worker>& worker = workers_[0];
  const int64_t pid = worker.Call<&Worker::Pid>().Get(kLong).value();
  auto leave = worker.Call<&Worker::Leave>();
  auto behind = worker.With({.max_retries = -1}).Call<&Worker::Step>();
  EXPECT_THAT(leave.Get(kLong), IsOk());
  EXPECT_THAT(behind.Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ExitActor")));
  EXPECT_TRUE(Eventually([&] {
    return !ProcessLives(pid) &&
           RealCluster::Info(driver_, worker).state() == v1::ACTOR_STATE_DEAD;
  }));
  EXPECT_EQ(RealCluster::Info(driver_, worker).restarts(), 0);
}

// Health checks and statistics do not wait behind a long training call.
TEST_F(CallsTest, AnActorThatTrainsAnswersHowItIs) {
  const std::vector<ObjectRef<bool>> refs = TrainAll();
  for (size_t i = 0; i < workers_.size(); ++i) {
    auto queued = workers_[i].Call<&Worker::Step>();
    for (int n = 0; n < 20; ++n) {
      EXPECT_THAT(workers_[i].Call<&Worker::Steps>().Get(kLong),
                  IsOkAndHolds(0));
    }
    const auto state = workers_[i].Inspect(kLong);
    ASSERT_THAT(state, IsOk());
    ASSERT_EQ(state->running_size(), 1);
    EXPECT_EQ(state->running(0).method(), "Train");
    EXPECT_EQ(state->calls_waiting(), 1u);
    EXPECT_GE(state->calls_done(), 20u);
    EXPECT_FALSE(refs[i].ready());
    EXPECT_FALSE(queued.ready());
  }
}

// Its methods run one at a time, whatever is asked for.
class Keeper {
 public:
  void Train() {
    while (!ActorContext::Current()->cancelled()) usleep(1000);
  }
  int64_t Step() { return ++steps_; }
  int64_t Pid() const { return getpid(); }
  int64_t SaveState() const { return steps_; }
  void RestoreState(int64_t steps) { steps_ = steps; }

 private:
  int64_t steps_ = 0;
};
MINIRAY_ACTOR(Keeper, Constructor<>, &Keeper::Train, &Keeper::Step,
              &Keeper::Pid);

TEST_F(CallsTest, WhoKeepsItsStateAnswersHowItIsToo) {
  const auto keeper = driver_.CreateActor<Keeper>({.resources = {.cpu = 0}});
  ASSERT_THAT(keeper, IsOk());
  const auto pid = keeper->Call<&Keeper::Pid>().Get(kLong);
  ASSERT_THAT(pid, IsOk());
  auto training = keeper->Call<&Keeper::Train>();
  auto queued = keeper->Call<&Keeper::Step>();
  EXPECT_TRUE(Eventually([&] {
    const auto state = keeper->Inspect(kLong);
    EXPECT_THAT(state, IsOk());
    return state.ok() && state->running_size() == 1 &&
           state->running(0).method() == "Train" && state->calls_waiting() == 1;
  }));
  EXPECT_FALSE(queued.ready());
  Cancel(training);
  EXPECT_THAT(training.Get(kLong), IsOk());
  EXPECT_THAT(queued.Get(kLong), IsOkAndHolds(1));
  EXPECT_EQ(keeper->Inspect(kLong)->running_size(), 0);

  ASSERT_TRUE(StopProcess(*pid));
  EXPECT_THAT(keeper->Inspect(kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("does not answer")));
  ASSERT_EQ(kill(static_cast<pid_t>(*pid), SIGCONT), 0);
  EXPECT_THAT(keeper->Inspect(kLong), IsOk());
  ASSERT_THAT(keeper->Kill(), IsOk());
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(keeper->Inspect(kLong).status().ToString(),
                             "the actor is dead: killed by request");
  }));
}

// The head is not needed to ask an actor that this process calls.
TEST_F(CallsTest, WithoutTheHeadAnActorAnswersHowItIs) {
  const int64_t pid = workers_[0].Call<&Worker::Pid>().Get(kLong).value();
  real_.KillHead();
  const auto state = workers_[0].Inspect(kLong);
  ASSERT_THAT(state, IsOk());
  EXPECT_GE(state->calls_done(), 2u);
  // Nobody knows of one that is gone; that takes no longer than it may.
  ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
  const absl::Time begin = absl::Now();
  EXPECT_FALSE(workers_[0].Inspect(absl::Seconds(1)).ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  real_.StartHead();
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
