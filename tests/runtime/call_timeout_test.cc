// CallOptions::timeout, on real processes: what is too late never runs, whoever
// stands still, and disturbs nobody else.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
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
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

class Desk {
 public:
  // Until it is told to stop; returns 1 if nobody waited for it by then.
  int64_t Work() {
    working_ = true;
    while (!stop_ && !ActorContext::Current()->cancelled()) usleep(1000);
    working_ = false;
    const bool unwanted = ActorContext::Current()->cancelled();
    saw_it_ = saw_it_ || unwanted;
    return unwanted ? 1 : 0;
  }
  int64_t Note(int64_t n) {
    absl::MutexLock lock(&mu_);
    notes_.push_back(n);
    return n;
  }
  std::string WorkAndReport(int64_t size) {
    Work();
    return std::string(static_cast<size_t>(size), 'r');
  }

  // Beside the others.
  void Stop() { stop_ = true; }
  bool Working() const { return working_; }
  bool SawIt() const { return saw_it_; }
  std::vector<int64_t> Notes() const {
    absl::MutexLock lock(&mu_);
    return notes_;
  }

 private:
  std::atomic<bool> working_ = false, stop_ = false, saw_it_ = false;
  mutable absl::Mutex mu_;
  std::vector<int64_t> notes_ ABSL_GUARDED_BY(mu_);
};
MINIRAY_ACTOR(Desk, Constructor<>, &Desk::Work, &Desk::Note,
              &Desk::WorkAndReport, &Desk::Stop, &Desk::Working, &Desk::SawIt,
              &Desk::Notes);

// A caller in a process of its own, which can be stopped.
class Clerk {
 public:
  int64_t Pid() { return getpid(); }
  // Notes 1, which has so long, and 2 and 3, which wait for ever. Returns what
  // became of each.
  std::vector<std::string> Ask(const ActorHandle<Desk>& desk,
                               int64_t timeout_ms) {
    std::vector<ObjectRef<int64_t>> refs;
    refs.push_back(desk.With({.timeout = absl::Milliseconds(timeout_ms)})
                       .Call<&Desk::Note>(1));
    refs.push_back(desk.Call<&Desk::Note>(2));
    std::vector<std::string> ends;
    for (int i = 0; i < 2; ++i) ends.push_back(End(refs[i]));
    ends.push_back(End(desk.Call<&Desk::Note>(3)));
    return ends;
  }

 private:
  static std::string End(const ObjectRef<int64_t>& ref) {
    const absl::StatusOr<int64_t> note = ref.Get(kLong);
    return note.ok() ? absl::StrCat(*note)
                     : absl::StatusCodeToString(note.status().code());
  }
};
MINIRAY_ACTOR(Clerk, Constructor<>, &Clerk::Pid, &Clerk::Ask);

class CallTimeoutTest : public testing::Test {
 protected:
  ActorHandle<Desk> MakeDesk() {
    auto desk = driver_.CreateActor<Desk>(
        {.name = "desk",
         .concurrency_groups = {{.name = "control",
                                 .methods = {MethodName<&Desk::Stop>(),
                                             MethodName<&Desk::Working>(),
                                             MethodName<&Desk::SawIt>(),
                                             MethodName<&Desk::Notes>()}}}});
    EXPECT_THAT(desk, IsOk());
    return *desk;
  }

  static bool AwaitWorking(const ActorHandle<Desk>& desk) {
    return Eventually(
        [&] { return desk.Call<&Desk::Working>().Get(kLong).value(); }, kLong);
  }

  v1::InspectResponse Inspect(const AnyActorHandle& actor) {
    auto stub =
        v1::ActorService::NewStub(MakeChannel(cluster_.Info(actor).address()));
    grpc::ClientContext context;
    AddToken(&context, "");
    v1::InspectRequest request;
    request.set_actor_id(actor.actor_id());
    v1::InspectResponse response;
    EXPECT_TRUE(stub->Inspect(&context, request, &response).ok());
    return response;
  }

  TestCluster cluster_;
  Cluster driver_ = cluster_.Connect();
};

TEST_F(CallTimeoutTest, ARunningCallSeesItAndItsCallerKnowsAtOnce) {
  const auto desk = MakeDesk();
  ASSERT_THAT(desk.WaitReady(kLong), IsOk());
  auto work = desk.With({.timeout = absl::Milliseconds(1500)})
                  .Call<&Desk::WorkAndReport>(10);
  auto behind = desk.Call<&Desk::Note>(1);
  const absl::Status status = work.Get(kLong).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               AllOf(HasSubstr("Desk.WorkAndReport on 'desk'"),
                                     HasSubstr("timeout of 1.5s"))));
  EXPECT_EQ(work.Get(kLong).status(), status);
  // It has waited all the time: without a timeout there is none.
  EXPECT_THAT(behind.Get(kLong), IsOkAndHolds(1));
  EXPECT_THAT(desk.Call<&Desk::SawIt>().Get(kLong), IsOkAndHolds(true));
}

TEST_F(CallTimeoutTest, TheErrorSaysWhereTheCallWas) {
  const auto desk = MakeDesk();
  auto work = desk.Call<&Desk::Work>();
  ASSERT_TRUE(AwaitWorking(desk));
  EXPECT_THAT(
      desk.With({.timeout = absl::Seconds(1)}).Call<&Desk::Note>(1).Get(kLong),
      StatusIs(
          absl::StatusCode::kDeadlineExceeded,
          AllOf(HasSubstr("Desk.Note on 'desk'"), HasSubstr("timeout of 1s"),
                HasSubstr("was sent"), HasSubstr(cluster_.daemon(0).node_id()),
                HasSubstr("it is cancelled"))));
  // Behind an argument that is not there.
  EXPECT_THAT(desk.With({.timeout = absl::Seconds(1)})
                  .Call<&Desk::Note>(work)
                  .Get(kLong),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("it waits for its argument 1"),
                             HasSubstr("it never runs"))));
  ASSERT_THAT(desk.Call<&Desk::Stop>().Get(kLong), IsOk());
  EXPECT_THAT(work.Get(kLong), IsOkAndHolds(0));
  EXPECT_THAT(desk.Call<&Desk::Note>(2).Get(kLong), IsOk());
  EXPECT_THAT(desk.Call<&Desk::Notes>().Get(kLong),
              IsOkAndHolds(std::vector<int64_t>{2}));
  auto large = driver_.CreateActor<Desk>({.resources = {.cpu = 100}});
  ASSERT_THAT(large, IsOk());
  EXPECT_THAT(large->With({.timeout = absl::Seconds(2)})
                  .Call<&Desk::Note>(1)
                  .Get(kLong),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("the actor waits for CPU 100"),
                             HasSubstr("it never runs"))));
}

TEST_F(CallTimeoutTest, WhatIsTooLateNeverRunsThoughItsCallerStandsStill) {
  const auto desk = MakeDesk();
  const auto clerk = driver_.CreateActor<Clerk>({});
  ASSERT_THAT(clerk, IsOk());
  const int64_t pid = clerk->Call<&Clerk::Pid>().Get(kLong).value();
  auto work = desk.Call<&Desk::Work>();
  ASSERT_TRUE(AwaitWorking(desk));
  auto ends = clerk->Call<&Clerk::Ask>(desk, 2000);
  ASSERT_TRUE(
      Eventually([&] { return Inspect(desk).calls_waiting() == 2; }, kLong));
  ASSERT_TRUE(StopProcess(pid));
  // The time of a later call with more of it is over after that of the first.
  EXPECT_THAT(desk.With({.timeout = absl::Milliseconds(2100)})
                  .Call<&Desk::Note>(4)
                  .Get(kLong),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  ASSERT_THAT(desk.Call<&Desk::Stop>().Get(kLong), IsOk());
  EXPECT_THAT(work.Get(kLong), IsOkAndHolds(0));
  EXPECT_TRUE(
      Eventually([&] { return Inspect(desk).calls_waiting() == 0; }, kLong));
  ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGCONT), 0);
  EXPECT_THAT(ends.Get(kLong), IsOkAndHolds(std::vector<std::string>{
                                   "DEADLINE_EXCEEDED", "2", "3"}));
  EXPECT_THAT(desk.Call<&Desk::Notes>().Get(kLong),
              IsOkAndHolds(std::vector<int64_t>{2, 3}));
}

TEST_F(CallTimeoutTest, AQueuedCallThatIsTooLateLeavesTheQueue) {
  const auto desk = MakeDesk();
  auto work = desk.Call<&Desk::Work>();
  ASSERT_TRUE(AwaitWorking(desk));
  std::vector<ObjectRef<int64_t>> late, others;
  for (int64_t i = 0; i < 3000; ++i) {  // More than are sent at a time.
    late.push_back(desk.With({.timeout = absl::Milliseconds(300)})
                       .Call<&Desk::Note>(10000 + i));
    others.push_back(desk.Call<&Desk::Note>(i));
  }
  for (const auto& ref : late) {
    ASSERT_THAT(ref.Get(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded));
  }
  // Before the actor has a thread for them, and so do all others reach it.
  EXPECT_TRUE(
      Eventually([&] { return Inspect(desk).calls_waiting() == 3000; }, kLong));
  EXPECT_FALSE(work.ready());
  ASSERT_THAT(desk.Call<&Desk::Stop>().Get(kLong), IsOk());
  for (int64_t i = 0; i < 3000; ++i) {
    ASSERT_THAT(others[i].Get(kLong), IsOkAndHolds(i));
  }
  const auto notes = desk.Call<&Desk::Notes>().Get(kLong);
  ASSERT_THAT(notes, IsOk());
  ASSERT_EQ(notes->size(), 3000u);
  for (int64_t i = 0; i < 3000; ++i) ASSERT_EQ((*notes)[i], i);
}

TEST_F(CallTimeoutTest, AResultThatComesTooLateIsNotKept) {
  const auto desk = MakeDesk();
  ASSERT_THAT(desk.WaitReady(kLong), IsOk());
  auto work = desk.With({.keep_result = true, .timeout = absl::Seconds(1)})
                  .Call<&Desk::WorkAndReport>(5'000'000);
  EXPECT_THAT(work.Get(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded));
  // Behind it: by then it was kept.
  EXPECT_THAT(desk.Call<&Desk::Note>(1).Get(kLong), IsOk());
  EXPECT_TRUE(
      Eventually([&] { return Inspect(desk).kept_objects() == 0; }, kLong));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
