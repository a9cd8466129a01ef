// What callers of actors rely on, end to end: retries, groups, saved state,
// cancelling, exiting. Real processes, a real head.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

// Counts, and keeps the count over restarts.
class Account {
 public:
  explicit Account(int64_t start) : balance_(start) {}
  int64_t Deposit(int64_t amount) { return balance_ += amount; }
  int64_t Balance() const { return balance_; }
  int64_t Pid() const { return getpid(); }
  void Die() { kill(getpid(), SIGKILL); }
  absl::Status SaveNow() { return ActorContext::Current()->SaveState(); }
  // Ends the process in the middle of a call that changed the state.
  int64_t DepositAndDie(int64_t amount) {
    balance_ += amount;
    kill(getpid(), SIGKILL);
    return balance_;
  }

  std::map<std::string, int64_t> SaveState() const {
    return {{"balance", balance_}};
  }
  absl::Status RestoreState(const std::map<std::string, int64_t>& state) {
    auto it = state.find("balance");
    if (it == state.end()) return absl::DataLossError("no balance");
    balance_ = it->second;
    return absl::OkStatus();
  }

 private:
  int64_t balance_;
};
MINIRAY_ACTOR(Account, Constructor<int64_t>, &Account::Deposit,
              &Account::Balance, &Account::Pid, &Account::Die,
              &Account::SaveNow, &Account::DepositAndDie);

class Trainer {
 public:
  // Long, unless it is told to stop.
  bool Train() {
    training_ = true;
    while (!ActorContext::Current()->cancelled()) {
      usleep(1000);
      if (stop_) return false;
    }
    return true;
  }
  bool Training() const { return training_; }
  std::string Health() const { return "fine"; }
  void Stop() { stop_ = true; }
  int64_t Pid() { return getpid(); }
  void Leave() { ExitActor(); }
  void Die() { kill(getpid(), SIGKILL); }
  // How many of these run at once, as the last one saw it.
  int Together() {
    const int now = ++together_;
    for (int i = 0; i < 2000 && together_ < 4; ++i) usleep(1000);
    return now;
  }
  // Trains on what it is given, until it is told to stop.
  int64_t TrainOn(const std::string& data) {
    training_ = true;
    while (!stop_ && !ActorContext::Current()->cancelled()) usleep(1000);
    return static_cast<int64_t>(data.size());
  }

 private:
  std::atomic<bool> training_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<int> together_ = 0;
};
MINIRAY_ACTOR(Trainer, Constructor<>, &Trainer::Train, &Trainer::Training,
              &Trainer::Health, &Trainer::Stop, &Trainer::Pid, &Trainer::Leave,
              &Trainer::Die, &Trainer::Together, &Trainer::TrainOn);

// --- Retries.

class Printer {
 public:
  // The actor's first process waits until somebody has opened the named pipe
  // for writing and closed it again.
  std::string Print(int64_t size, const std::string& pipe) {
    if (ActorContext::Current()->num_restarts() == 0 && !waited_) {
      const int fd = open(pipe.c_str(), O_RDONLY | O_CLOEXEC);
      char byte;
      while (read(fd, &byte, 1) > 0) {
      }
      close(fd);
      waited_ = true;
    }
    return std::string(static_cast<size_t>(size), 'x');
  }

 private:
  bool waited_ = false;
};
MINIRAY_ACTOR(Printer, Constructor<>, &Printer::Print);

// A caller in a process of its own, which can be stopped.
class Subscriber {
 public:
  int64_t Pid() { return getpid(); }
  // Returns the sizes of the results, or the code of the error.
  std::vector<std::string> Read(const ActorHandle<Printer>& printer,
                                int64_t calls, int64_t size,
                                const std::string& pipe, int max_retries) {
    std::vector<ObjectRef<std::string>> refs;
    for (int64_t i = 0; i < calls; ++i) {
      refs.push_back(printer.With({.max_retries = max_retries})
                         .Call<&Printer::Print>(size, pipe));
    }
    std::vector<std::string> results;
    for (const auto& ref : refs) {
      const absl::StatusOr<std::string> text = ref.Get(kLong);
      results.push_back(text.ok()
                            ? absl::StrCat(text->size())
                            : absl::StatusCodeToString(text.status().code()));
    }
    return results;
  }
};
MINIRAY_ACTOR(Subscriber, Constructor<>, &Subscriber::Pid, &Subscriber::Read);

TEST(CallsTest, CallsWithRetriesSurviveTheDeathsOfTheActor) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto account =
      driver.CreateActor<Account>({.max_restarts = -1, .max_retries = -1}, 100);
  const auto pid = static_cast<pid_t>(*account->Call<&Account::Pid>().Get());
  std::vector<ObjectRef<int64_t>> refs;
  for (int i = 0; i < 200; ++i) {
    refs.push_back(account->Call<&Account::Deposit>(1));
    if (i == 100) kill(pid, SIGKILL);
  }
  const auto values = GetAll(refs, kLong);
  ASSERT_THAT(values, IsOk());
  // Some may have run in both processes; none was lost, and each has a result.
  EXPECT_GE(values->back(), 300);
  for (size_t i = 1; i < values->size(); ++i) {
    EXPECT_GT((*values)[i], (*values)[i - 1]);
  }
}

// Results lie in memory of the process that made them: a reply whose process
// was killed before the caller looked at it is none.
TEST(CallsTest, RepliesWhoseResultsDiedWithTheirProcessAreNone) {
  constexpr int64_t kSize = 300'000;
  constexpr int64_t kCalls = 20;
  TestCluster cluster({.head = {.max_restart_delay = absl::Milliseconds(20)}});
  Cluster driver = cluster.Connect();
  for (const int max_retries : {-1, 0}) {
    const auto printer = driver.CreateActor<Printer>({.max_restarts = -1});
    const auto subscriber = driver.CreateActor<Subscriber>({});
    ASSERT_THAT(printer, IsOk());
    ASSERT_THAT(subscriber, IsOk());
    const auto reader = static_cast<pid_t>(
        subscriber->Call<&Subscriber::Pid>().Get(kLong).value());
    ASSERT_THAT(printer->WaitReady(kLong), IsOk());
    const v1::ActorInfo info = cluster.Info(*printer);
    const std::string pipe =
        absl::StrCat(testing::TempDir(), "/pipe", max_retries);
    unlink(pipe.c_str());
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const auto results = subscriber->Call<&Subscriber::Read>(
        *printer, kCalls, kSize, pipe, max_retries);

    // The caller stands still from before the first reply until the actor is
    // dead; what was replied waits in its socket.
    int writer = -1;
    ASSERT_TRUE(Eventually([&] {
      writer = open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      return writer >= 0;
    }));
    auto stub = v1::ActorService::NewStub(MakeChannel(info.address()));
    const auto inspect = [&] {
      grpc::ClientContext context;
      AddToken(&context, "");
      v1::InspectRequest request;
      request.set_actor_id(printer->actor_id());
      v1::InspectResponse response;
      EXPECT_TRUE(stub->Inspect(&context, request, &response).ok());
      return response;
    };
    ASSERT_TRUE(
        Eventually([&] { return inspect().calls_waiting() == kCalls - 1; }));
    ASSERT_TRUE(StopProcess(reader));
    close(writer);
    const bool replied =
        Eventually([&] { return inspect().calls_done() == kCalls; });
    EXPECT_EQ(kill(static_cast<pid_t>(info.pid()), SIGKILL), 0);
    const bool died = Eventually([&] { return !ProcessLives(info.pid()); });
    ASSERT_EQ(kill(reader, SIGCONT), 0);
    ASSERT_TRUE(replied && died);
    const auto read = results.Get(kLong);
    ASSERT_THAT(read, IsOk());
    EXPECT_THAT(*read, testing::Each(max_retries == 0 ? "UNAVAILABLE"
                                                      : absl::StrCat(kSize)));
  }
}

TEST(CallsTest, WithoutRetriesACallFailsAndOneWithThemWaits) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto account = driver.CreateActor<Account>({.max_restarts = 1}, 100);
  ASSERT_THAT(account->Call<&Account::Balance>().Get(kLong), IsOk());
  auto death = account->Call<&Account::Die>();
  auto patient = account->With({.max_retries = 1}).Call<&Account::Deposit>(5);
  EXPECT_THAT(death.Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("SIGKILL")));
  EXPECT_EQ(*patient.Get(kLong), 105);
  // A handle carries its creator's default to where it travels: here by name.
  auto named = driver.CreateActor<Account>(
      {.name = "a", .max_restarts = -1, .max_retries = 7}, 1);
  EXPECT_EQ(driver.GetActor<Account>("a")->identity().max_retries, 7);
  EXPECT_THAT(
      account->With({.max_retries = -2}).Call<&Account::Balance>().Get(kLong),
      StatusIs(absl::StatusCode::kInvalidArgument));
}

// --- Saved state.

TEST(CallsTest, NothingThatWasAcknowledgedIsLostWhenTheProcessDies) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto account = driver.CreateActor<Account>({.max_restarts = -1}, 0);
  int64_t acknowledged = 0, unknown = 0;
  for (int round = 0; round < 4; ++round) {
    const auto pid = static_cast<pid_t>(
        *account->With({.max_retries = -1}).Call<&Account::Pid>().Get(kLong));
    std::vector<ObjectRef<int64_t>> refs;
    for (int i = 0; i < 300; ++i) {
      refs.push_back(account->Call<&Account::Deposit>(1));
    }
    Wait(refs, 50 + 40 * round, kLong);
    kill(pid, SIGKILL);
    for (const auto& ref : refs) {
      const auto result = ref.Get(kLong);
      result.ok() ? ++acknowledged : ++unknown;
    }
    const auto balance =
        account->With({.max_retries = -1}).Call<&Account::Balance>().Get(kLong);
    ASSERT_THAT(balance, IsOk());
    EXPECT_GE(*balance, acknowledged);
    EXPECT_LE(*balance, acknowledged + unknown);
  }
  EXPECT_GE(acknowledged, 200);
}

TEST(CallsTest, ACallThatDiedBeforeItsReplyLeftNothing) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto account = driver.CreateActor<Account>({.max_restarts = 1}, 10);
  ASSERT_EQ(*account->Call<&Account::Deposit>(1).Get(kLong), 11);
  EXPECT_THAT(account->Call<&Account::DepositAndDie>(100).Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(
      *account->With({.max_retries = -1}).Call<&Account::Balance>().Get(kLong),
      11);
}

TEST(CallsTest, StateIsSavedWhenTheActorAsksOrAfterATime) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto manual = driver.CreateActor<Account>(
      {.max_restarts = -1, .save_state = SaveStatePolicy::Manual()}, 10);
  ASSERT_THAT(manual->Call<&Account::Deposit>(1).Get(kLong), IsOk());
  ASSERT_THAT(manual->Call<&Account::SaveNow>().Get(kLong), IsOk());
  ASSERT_THAT(manual->Call<&Account::Deposit>(100).Get(kLong), IsOk());
  EXPECT_FALSE(manual->Call<&Account::Die>().Get(kLong).ok());
  auto patient = manual->With({.max_retries = -1});
  EXPECT_EQ(*patient.Call<&Account::Balance>().Get(kLong), 11);

  auto timed = driver.CreateActor<Account>(
      {.max_restarts = -1,
       .save_state = SaveStatePolicy::Every(absl::Milliseconds(20))},
      10);
  // Saved without any further call, again and again.
  auto saved = [&](int incarnation) -> int64_t {
    const auto state =
        driver.client()->LoadActorState(timed->actor_id(), incarnation);
    std::map<std::string, int64_t> values;
    if (!state.ok() || !DecodeValue(*state, &values).ok()) return 0;
    return values["balance"];
  };
  for (int round = 0; round < 2; ++round) {
    const int64_t balance = 11 + round;
    ASSERT_THAT(
        timed->With({.max_retries = -1}).Call<&Account::Deposit>(1).Get(kLong),
        IsOkAndHolds(balance));
    ASSERT_TRUE(Eventually([&] { return saved(round) == balance; }));
    EXPECT_FALSE(timed->Call<&Account::Die>().Get(kLong).ok());
  }
  EXPECT_THAT(
      timed->With({.max_retries = -1}).Call<&Account::Balance>().Get(kLong),
      IsOkAndHolds(12));
}

TEST(CallsTest, AClassThatSavesItsStateRunsOneMethodAtATime) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  EXPECT_THAT(
      driver.CreateActor<Account>({.max_concurrency = 2}, 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one at a time")));
  EXPECT_THAT(driver.CreateActor<Trainer>({.max_concurrency = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(driver.CreateActor<Trainer>(
                  {.concurrency_groups = {{.name = "a"}, {.name = "a"}}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// --- Concurrency groups.

// A Trainer whose health is asked for beside all else.
ActorHandle<Trainer> MakeWatched(const Cluster& driver) {
  auto trainer = driver.CreateActor<Trainer>(
      {.concurrency_groups = {{.name = "health",
                               .methods = {MethodName<&Trainer::Health>(),
                                           MethodName<&Trainer::Training>(),
                                           MethodName<&Trainer::Stop>()}}}});
  EXPECT_THAT(trainer, IsOk());
  return *trainer;
}

TEST(CallsTest, AGroupDoesNotWaitBehindLargeArgumentsOfAnother) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = MakeWatched(driver);
  const std::string data(int64_t{300} << 20, 'd');
  std::vector<ObjectRef<int64_t>> training;
  training.push_back(trainer.Call<&Trainer::TrainOn>(data));
  training.push_back(trainer.Call<&Trainer::TrainOn>(data));
  ASSERT_TRUE(
      Eventually([&] { return *trainer.Call<&Trainer::Training>().Get(kLong); },
                 absl::Seconds(30)));
  EXPECT_EQ(*trainer.Call<&Trainer::Health>().Get(kLong), "fine");
  EXPECT_FALSE(training[0].ready());
  ASSERT_THAT(trainer.Call<&Trainer::Stop>().Get(kLong), IsOk());
  EXPECT_EQ(*training[1].Get(kLong), data.size());
}

TEST(CallsTest, AGroupDoesNotWaitBehindManyCallsOfAnother) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = MakeWatched(driver);
  auto train = trainer.Call<&Trainer::Train>();
  std::vector<ObjectRef<int64_t>> queued;
  for (int i = 0; i < 20000; ++i) {
    queued.push_back(trainer.Call<&Trainer::Pid>());
  }
  EXPECT_EQ(*trainer.Call<&Trainer::Health>().Get(kLong), "fine");
  EXPECT_FALSE(queued.front().ready());
  ASSERT_THAT(trainer.Call<&Trainer::Stop>().Get(kLong), IsOk());
  EXPECT_THAT(GetAll(queued, kLong), IsOk());
}

TEST(CallsTest, AGroupDoesNotWaitForArgumentsOfAnother) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto slow = driver.CreateActor<Trainer>({.max_concurrency = 2});
  auto trainer = MakeWatched(driver);
  ASSERT_THAT(trainer.Call<&Trainer::Health>().Get(kLong), IsOk());
  // An argument that takes long.
  auto data = slow->Call<&Trainer::TrainOn>(std::string("d"));
  auto account = driver.CreateActor<Account>({}, 1);
  auto deposit = account->Call<&Account::Deposit>(data);
  auto behind = account->Call<&Account::Balance>();
  EXPECT_THAT(account->With({.concurrency_group = "none"})
                  .Call<&Account::Balance>()
                  .Get(kLong),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(deposit.ready());
  EXPECT_FALSE(behind.ready());
  ASSERT_THAT(slow->Call<&Trainer::Stop>().Get(kLong), IsOk());
  EXPECT_EQ(*deposit.Get(kLong), 2);
  EXPECT_EQ(*behind.Get(kLong), 2);
}

TEST(CallsTest, HoweverManyCallsWaitEachCanBeCancelled) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = MakeWatched(driver);
  auto train = trainer.Call<&Trainer::Train>();
  ASSERT_TRUE(Eventually(
      [&] { return *trainer.Call<&Trainer::Training>().Get(kLong); }));
  std::vector<ObjectRef<int64_t>> queued;
  for (int i = 0; i < 50000; ++i) {
    queued.push_back(trainer.Call<&Trainer::Pid>());
  }
  for (auto& ref : queued) Cancel(ref);
  for (auto& ref : queued) {
    ASSERT_THAT(ref.Get(kLong), StatusIs(absl::StatusCode::kCancelled));
  }
  EXPECT_FALSE(train.ready());
  EXPECT_THAT(trainer.Call<&Trainer::Stop>().Get(kLong), IsOk());
}

TEST(CallsTest, GroupsRunBesideEachOtherAndInspectBesideAll) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>(
      {.concurrency_groups = {{.name = "health",
                               .methods = {MethodName<&Trainer::Health>(),
                                           MethodName<&Trainer::Training>()}},
                              {.name = "wide", .max_concurrency = 4}}});
  auto train = trainer->Call<&Trainer::Train>();
  EXPECT_EQ(*trainer->Call<&Trainer::Health>().Get(kLong), "fine");
  ASSERT_TRUE(Eventually(
      [&] { return *trainer->Call<&Trainer::Training>().Get(kLong); }));
  // Behind the training call, unless it names another group.
  auto behind = trainer->Call<&Trainer::Pid>();
  EXPECT_THAT(trainer->With({.concurrency_group = "health"})
                  .Call<&Trainer::Pid>()
                  .Get(kLong),
              IsOk());
  EXPECT_FALSE(behind.ready());
  EXPECT_THAT(
      trainer->With({.concurrency_group = "none"})
          .Call<&Trainer::Pid>()
          .Get(kLong),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'none'")));
  std::vector<ObjectRef<int>> together;
  for (int i = 0; i < 4; ++i) {
    together.push_back(trainer->With({.concurrency_group = "wide"})
                           .Call<&Trainer::Together>());
  }
  const auto ranks = GetAll(together, kLong);
  ASSERT_THAT(ranks, IsOk());
  EXPECT_THAT(*ranks, testing::UnorderedElementsAre(1, 2, 3, 4));

  auto stub =
      v1::ActorService::NewStub(MakeChannel(cluster.Info(*trainer).address()));
  grpc::ClientContext context;
  AddToken(&context, "");
  v1::InspectRequest request;
  request.set_actor_id(trainer->actor_id());
  v1::InspectResponse response;
  ASSERT_TRUE(stub->Inspect(&context, request, &response).ok());
  ASSERT_EQ(response.running_size(), 1);
  EXPECT_EQ(response.running(0).method(), "Train");
  EXPECT_EQ(response.calls_waiting(), 1u);
  EXPECT_GE(response.calls_done(), 7u);
  EXPECT_EQ(response.calls_failed(), 0u);

  // It sees that it is wanted no more.
  Cancel(train);
  EXPECT_EQ(*train.Get(kLong), true);
  EXPECT_THAT(behind.Get(kLong), IsOk());
}

TEST(CallsTest, ACancelledCallThatWaitsNeverRuns) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>(
      {.concurrency_groups = {{.name = "control",
                               .methods = {MethodName<&Trainer::Stop>(),
                                           MethodName<&Trainer::Health>()}}}});
  auto train = trainer->Call<&Trainer::Train>();
  auto death = trainer->Call<&Trainer::Die>();
  EXPECT_THAT(trainer->Call<&Trainer::Health>().Get(kLong), IsOk());
  Cancel(death);
  EXPECT_THAT(death.Get(kLong), StatusIs(absl::StatusCode::kCancelled));
  ASSERT_THAT(trainer->Call<&Trainer::Stop>().Get(kLong), IsOk());
  EXPECT_EQ(*train.Get(kLong), false);
  EXPECT_EQ(*trainer->Call<&Trainer::Health>().Get(kLong), "fine");
}

// --- The rest.

TEST(CallsTest, ATimeoutSaysWhatTheCallWaitsFor) {
  TestCluster cluster({.node_cpus = {1}});
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>({.name = "t"});
  auto train = trainer->Call<&Trainer::Train>();
  ASSERT_THAT(trainer->WaitReady(kLong), IsOk());
  ASSERT_TRUE(Eventually([&] {
    const std::string message(
        train.Get(absl::Milliseconds(1)).status().message());
    return message.find("was sent to the actor") != std::string::npos &&
           message.find(cluster.daemon(0).node_id()) != std::string::npos;
  }));
  auto waiting = driver.CreateActor<Trainer>({});
  auto call = waiting->Call<&Trainer::Health>();
  ASSERT_TRUE(Eventually([&] {
    const std::string message(
        call.Get(absl::Milliseconds(1)).status().message());
    return message.find("the actor waits for CPU 1: all of it is in use") !=
           std::string::npos;
  }));
  EXPECT_THAT(Kill(*trainer), IsOk());
  EXPECT_THAT(call.Get(kLong), IsOk());
}

TEST(CallsTest, ErrorsNameActorMethodAndNode) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>({.name = "t"});
  EXPECT_THAT(
      std::string(
          trainer->CallByName<int>("Nope").Get(kLong).status().message()),
      AllOf(HasSubstr("Trainer.Nope on 't'"),
            HasSubstr(cluster.daemon(0).node_id())));
}

TEST(CallsTest, PendingCallsAreLimitedByTheCreator) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>({.max_pending_calls = 2});
  auto train = trainer->Call<&Trainer::Train>();
  auto second = trainer->Call<&Trainer::Pid>();
  EXPECT_THAT(trainer->Call<&Trainer::Pid>().Get(kLong),
              StatusIs(absl::StatusCode::kResourceExhausted));
  Cancel(train);
  EXPECT_THAT(second.Get(kLong), IsOk());
}

TEST(CallsTest, ADefaultLimitsPendingCallsToAHundredThousand) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>({});
  std::vector<ObjectRef<int64_t>> refs;
  auto train = trainer->Call<&Trainer::Train>();
  for (int i = 1; i < 100'000; ++i) {
    refs.push_back(trainer->Call<&Trainer::Pid>());
  }
  EXPECT_FALSE(refs.back().ready());
  EXPECT_THAT(trainer->Call<&Trainer::Pid>().Get(kLong),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("100000 calls"), HasSubstr("wait for"),
                             HasSubstr("max_pending_calls"))));
  // One that is done makes room for one.
  Cancel(refs.back());
  EXPECT_THAT(refs.back().Get(kLong), StatusIs(absl::StatusCode::kCancelled));
  refs.back() = trainer->Call<&Trainer::Pid>();
  Cancel(train);
  EXPECT_THAT(GetAll(refs, kLong), IsOk());
}

TEST(CallsTest, TheBytesOfPendingCallsAreLimitedByTheCreator) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>(
      {.name = "t",
       .max_pending_bytes = 1'000'000,
       .concurrency_groups = {
           {.name = "control", .methods = {MethodName<&Trainer::Stop>()}}}});
  const std::string part(400'000, 'p');
  // One call alone may have more.
  auto large = trainer->Call<&Trainer::TrainOn>(std::string(3'000'000, 'l'));
  EXPECT_THAT(
      trainer->Call<&Trainer::TrainOn>(part).Get(kLong),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("limit of 1000000 bytes"), HasSubstr("wait for"),
                     HasSubstr("Put"), HasSubstr("max_pending_bytes"))));
  // A small one too: it is the sum that counts.
  EXPECT_THAT(trainer->Call<&Trainer::Stop>().Get(kLong),
              StatusIs(absl::StatusCode::kResourceExhausted));
  Cancel(large);
  ASSERT_TRUE(Eventually([&] { return large.ready(); }));
  // What its creator said goes with the handle, wherever it comes from.
  auto found = driver.GetActor<Trainer>("t");
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->identity().max_pending_bytes, 1'000'000);
  auto first = found->Call<&Trainer::TrainOn>(part);
  auto second = found->Call<&Trainer::TrainOn>(part);
  EXPECT_THAT(found->Call<&Trainer::TrainOn>(part).Get(kLong),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(found->Call<&Trainer::Stop>().Get(kLong), IsOk());
  EXPECT_THAT(first.Get(kLong), IsOkAndHolds(400'000));
  EXPECT_THAT(second.Get(kLong), IsOkAndHolds(400'000));
  EXPECT_THAT(found->Call<&Trainer::TrainOn>(part).Get(kLong),
              IsOkAndHolds(400'000));
  EXPECT_THAT(driver.CreateActor<Trainer>({.max_pending_bytes = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CallsTest, AnActorEndsItself) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>({.max_restarts = 3});
  const int64_t pid = *trainer->Call<&Trainer::Pid>().Get(kLong);
  auto leave = trainer->Call<&Trainer::Leave>();
  auto behind = trainer->Call<&Trainer::Pid>();
  EXPECT_THAT(leave.Get(kLong), IsOk());
  EXPECT_THAT(behind.Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("ended itself (ExitActor)")));
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
  // It is over, though it had restarts left.
  EXPECT_TRUE(Eventually(
      [&] { return cluster.Info(*trainer).state() == v1::ACTOR_STATE_DEAD; }));
  EXPECT_THAT(cluster.Info(*trainer).cause(), HasSubstr("ExitActor"));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
