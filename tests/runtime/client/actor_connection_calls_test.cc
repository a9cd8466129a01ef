// What becomes of calls over an ActorConnection that are cancelled, take too
// long, are too many, or whose actor ends.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/client/actor_connection.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/client/actor_connection_testutil.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using ActorConnectionCallsTest = ActorConnectionTest;

INSTANTIATE_TEST_SUITE_P(Streams, ActorConnectionCallsTest,
                         testing::Values(Transport::kTcp, Transport::kGrpc),
                         &NameOfStream);

// --- Cancelling.

TEST_P(ActorConnectionCallsTest, CancelledCallsDoNotRunOrSeeIt) {
  auto connection = Connect();
  SetGate(false);
  auto running = connection->Call(Request("Hold"));
  auto queued = connection->Call(Record(1, 1));
  auto behind = connection->Call(Record(1, 2));
  ASSERT_TRUE(AwaitHolding(1));
  queued->Cancel();
  EXPECT_THAT(queued->Wait(kLong), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_FALSE(running->done());
  running->Cancel();
  absl::StatusOr<absl::Cord> result = running->Wait(kLong);
  ASSERT_THAT(result, IsOk());
  bool saw_it = false;
  ASSERT_THAT(DecodeValue(*result, &saw_it), IsOk());
  EXPECT_TRUE(saw_it);
  EXPECT_THAT(Number(behind), IsOk());
  behind->Cancel();  // It is done: nothing happens.
  EXPECT_THAT(Runs(1), testing::ElementsAre(2));
}

TEST_P(ActorConnectionCallsTest,
       WhatIsCancelledWhileTheLinkIsAwayCancelsNoOther) {
  auto connection = Connect();
  ASSERT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
  // Both are sent and do not arrive, so the second gets the first one's number.
  proxy_->Hold(true);
  auto cancelled = connection->Call(Record(1, 10));
  auto other = connection->Call(Record(1, 2));
  proxy_->Refuse(true);
  proxy_->Cut();
  proxy_->Hold(false);
  ASSERT_TRUE(Becomes([&] { return proxy_->refused() > 0; }));
  cancelled->Cancel();
  proxy_->Refuse(false);
  EXPECT_THAT(cancelled->Wait(kLong), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(Number(other), IsOkAndHolds(2));
  EXPECT_THAT(Runs(1), testing::ElementsAre(1, 2));
}

TEST_P(ActorConnectionCallsTest,
       ACallIsCancelledBeforeItIsSentAndOverABrokenLink) {
  head_->SetDown(true);
  auto connection = Connect();
  auto unsent = connection->Call(Record(1, 1));
  unsent->Cancel();
  EXPECT_THAT(unsent->Wait(kLong), StatusIs(absl::StatusCode::kCancelled));
  head_->SetDown(false);
  SetGate(false);
  auto running = connection->Call(Request("Hold"));
  ASSERT_TRUE(AwaitHolding(1));
  proxy_->Refuse(true);
  proxy_->Cut();
  running->Cancel();
  proxy_->Refuse(false);
  EXPECT_THAT(running->Wait(kLong), IsOk());
  EXPECT_THAT(Runs(1), testing::IsEmpty());
}

// --- Timeouts.

TEST_P(ActorConnectionCallsTest,
       WithTheCallerCutOffTheActorKnowsWhatIsTooLate) {
  auto connection = Connect();
  SetGate(false);
  // Together they leave, and so the second's time is over first.
  CallRequest request = Request("Hold", -1);
  request.timeout = absl::Seconds(3);
  auto running = connection->Call(std::move(request));
  request = Record(1, 1, -1);
  request.timeout = absl::Seconds(2);
  auto queued = connection->Call(std::move(request));
  auto behind = connection->Call(Record(1, 2));
  ASSERT_TRUE(AwaitHolding(1));
  proxy_->Refuse(true);
  proxy_->Cut();
  EXPECT_THAT(queued->Wait(kLong),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("Recorder.Record on actor-1"),
                             HasSubstr("timeout of 2s"),
                             HasSubstr(proxy_->address()))));
  EXPECT_THAT(running->Wait(kLong),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("timeout of 3s")));
  // Nobody tells the actor, and the gate is closed.
  ASSERT_TRUE(AwaitHolding(0));
  {
    Log& log = GetLog();
    absl::MutexLock lock(&log.mu);
    auto ran = [&] { return !log.runs[1].empty(); };
    ASSERT_TRUE(log.mu.AwaitWithTimeout(absl::Condition(&ran), kLong));
  }
  EXPECT_FALSE(behind->done());
  proxy_->Refuse(false);
  EXPECT_THAT(Number(behind), IsOkAndHolds(2));
  EXPECT_THAT(Number(connection->Call(Record(1, 3))), IsOkAndHolds(3));
  EXPECT_THAT(Runs(1), testing::ElementsAre(2, 3));
}

TEST_P(ActorConnectionCallsTest, WhatIsTooLateToBeSentLeavesNoGap) {
  auto connection = Connect();
  ASSERT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
  proxy_->Refuse(true);
  proxy_->Cut();
  std::vector<std::shared_ptr<CallState>> late, others;
  for (int i = 0; i < 10; ++i) {
    CallRequest request = Record(1, 10 + i, -1);
    // The first is not the first to end.
    request.timeout = absl::Milliseconds(500 - 20 * i);
    late.push_back(connection->Call(std::move(request)));
    others.push_back(connection->Call(Record(1, 30 + i)));
  }
  for (const auto& call : late) {
    EXPECT_THAT(call->Wait(kLong),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
  }
  proxy_->Refuse(false);
  EXPECT_THAT(Number(connection->Call(Record(1, 2))), IsOk());
  for (const auto& call : others) EXPECT_THAT(Number(call), IsOk());
  EXPECT_THAT(Runs(1), testing::ElementsAre(1, 30, 31, 32, 33, 34, 35, 36, 37,
                                            38, 39, 2));
}

TEST_P(ActorConnectionCallsTest, RetriesDoNotExtendATimeout) {
  auto connection = Connect();
  SetGate(false);
  CallRequest request = Request("Hold", -1);
  request.timeout = absl::Seconds(5);
  auto call = connection->Call(std::move(request));
  ASSERT_TRUE(AwaitHolding(1));
  std::unique_ptr<ActorServer> next = StartProcess(1);
  proxy_->SetTarget(next->address());
  head_->Set(Info(v1::ACTOR_STATE_ALIVE, 1));
  proxy_->Cut();
  ASSERT_TRUE(AwaitHolding(2));
  EXPECT_THAT(call->Wait(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded));
  // In both processes it ran, and saw it.
  EXPECT_TRUE(AwaitHolding(0));
  EXPECT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
}

TEST_P(ActorConnectionCallsTest, ATimeoutThatIsNotReachedChangesNothing) {
  auto connection = Connect();
  std::vector<std::shared_ptr<CallState>> calls;
  for (int i = 0; i < 2000; ++i) {
    CallRequest request = Record(1, i);
    // Every kind of order.
    if (i % 3 != 0) request.timeout = absl::Hours(1 + i * 7 % 11);
    calls.push_back(connection->Call(std::move(request)));
  }
  for (int i = 0; i < 2000; ++i) {
    EXPECT_THAT(Number(calls[i]), IsOkAndHolds(i));
  }
  EXPECT_THAT(Runs(1), testing::SizeIs(2000));
}

TEST_P(ActorConnectionCallsTest, NoTimeAtAllIsOverAtOnce) {
  auto connection = Connect();
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), -absl::Seconds(1), -absl::InfiniteDuration()}) {
    CallRequest request = Record(1, 1);
    request.timeout = timeout;
    auto call = connection->Call(std::move(request));
    EXPECT_TRUE(call->done());
    EXPECT_THAT(call->Wait(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                            HasSubstr("never runs")));
  }
  EXPECT_THAT(Number(connection->Call(Record(1, 2))), IsOk());
  EXPECT_THAT(Runs(1), testing::ElementsAre(2));
}

TEST_P(ActorConnectionCallsTest,
       AStoreThatDoesNotAnswerDoesNotOutlastTheTimeout) {
  absl::Mutex mu;
  std::vector<std::function<void(std::shared_ptr<void>)>> unanswered;
  hold_ = [&](const absl::Cord&,
              std::function<void(std::shared_ptr<void>)> done) {
    absl::MutexLock lock(&mu);
    unanswered.push_back(std::move(done));
  };
  auto connection = Connect();
  CallRequest request = Record(1, 1);
  request.keep_result = true;
  request.timeout = absl::Seconds(2);
  auto call = connection->Call(std::move(request));
  EXPECT_THAT(call->Wait(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                          HasSubstr("object store")));
  EXPECT_THAT(Runs(1), testing::ElementsAre(1));
  absl::MutexLock lock(&mu);
  // An answer that comes yet changes nothing.
  ASSERT_EQ(unanswered.size(), 1);
  unanswered[0](nullptr);
  EXPECT_THAT(call->Wait(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

// --- Limits, the end.

TEST_P(ActorConnectionCallsTest, PendingCallsAreLimited) {
  auto connection = Connect(absl::Seconds(30), 3);
  SetGate(false);
  auto first = connection->Call(Request("Hold"));
  auto second = connection->Call(Record(1, 1));
  auto third = connection->Call(Record(1, 2));
  EXPECT_THAT(
      connection->Call(Record(1, 3))->Wait(kLong),
      StatusIs(
          absl::StatusCode::kResourceExhausted,
          HasSubstr("3 calls of this process to the actor have no reply yet")));
  SetGate(true);
  EXPECT_THAT(Number(third), IsOk());
  EXPECT_THAT(Number(connection->Call(Record(1, 4))), IsOk());
}

TEST_P(ActorConnectionCallsTest, ADefaultLimitsTheBytesOfPendingCalls) {
  // It is still to start: all calls wait here.
  head_ = std::make_shared<FakeHead>(Info(v1::ACTOR_STATE_PENDING, 0));
  auto connection = Connect();
  // Of any size, and in memory once.
  const absl::Cord block(std::string(size_t{4} << 20, 'b'));
  auto call = [&](int blocks) {
    CallRequest request = Request("Record");
    request.args = {absl::Cord()};
    for (int i = 0; i < blocks; ++i) request.args[0].Append(block);
    return connection->Call(std::move(request));
  };
  std::vector<std::shared_ptr<CallState>> waiting;
  // 3 GiB and 900 MiB, of 4 GiB.
  for (const int blocks : {256, 256, 256, 225}) {
    waiting.push_back(call(blocks));
  }
  EXPECT_THAT(call(32)->Wait(kLong),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("limit of 4294967296 bytes"),
                             HasSubstr("max_pending_bytes"))));
  waiting.push_back(call(30));
  for (const auto& call : waiting) EXPECT_FALSE(call->done());
  // What is wanted no more makes room.
  waiting.front()->Cancel();
  EXPECT_THAT(waiting.front()->Wait(kLong),
              StatusIs(absl::StatusCode::kCancelled));
  waiting.push_back(call(250));
  EXPECT_FALSE(waiting.back()->done());
  connection->Close(absl::CancelledError("the test ends"));
}

// Together they are more than an actor keeps for a caller that acknowledges
// nothing; they are few, and no further call brings the acknowledgements.
TEST_P(ActorConnectionCallsTest, LargeErrorsDoNotHoldBackWhatFollows) {
  auto connection = Connect();
  std::shared_ptr<CallState> last;
  for (int i = 0; i < 70; ++i) {
    CallRequest request = Request("Fail");
    request.args = {*EncodeValue(int64_t{4} << 20)};
    last = connection->Call(std::move(request));
  }
  EXPECT_THAT(last->Wait(kLong),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("eee")));
}

TEST_P(ActorConnectionCallsTest, ExitAnswersItsCallAndFailsTheOthers) {
  auto connection = Connect();
  SetGate(false);
  auto hold = connection->Call(Request("Hold"));
  auto exit = connection->Call(Request("Exit"));
  auto queued = connection->Call(Record(1, 1));
  ASSERT_TRUE(AwaitHolding(1));
  SetGate(true);
  EXPECT_THAT(hold->Wait(kLong), IsOk());
  EXPECT_THAT(exit->Wait(kLong), IsOk());
  EXPECT_THAT(queued->Wait(kLong), StatusIs(absl::StatusCode::kUnavailable,
                                            HasSubstr("ended itself")));
  EXPECT_TRUE(Becomes([&] { return Events().size() >= 2; }));
  ASSERT_THAT(Events(), testing::SizeIs(2));
  EXPECT_TRUE(Events()[0].has_ready());
  EXPECT_EQ(Events()[0].ready().address(), server_->address());
  EXPECT_TRUE(Events()[1].has_ending());
  EXPECT_FALSE(Events()[1].ending().has_status());
  EXPECT_EQ(Events()[1].actor_id(), "actor-1");
}

TEST_P(ActorConnectionCallsTest,
       ARemovedActorFailsWhatWaitsAndEndsWhenItIsQuiet) {
  auto connection = Connect();
  SetGate(false);
  auto hold = connection->Call(Request("Hold"));
  auto queued = connection->Call(Record(1, 1));
  ASSERT_TRUE(AwaitHolding(1));
  server_->RemoveActor("actor-1", 5, "not this one");
  server_->RemoveActor("actor-1", 0, "killed by request");
  EXPECT_THAT(queued->Wait(kLong), StatusIs(absl::StatusCode::kUnavailable,
                                            HasSubstr("killed by request")));
  SetGate(true);
  EXPECT_THAT(hold->Wait(kLong), IsOk());
}

}  // namespace
}  // namespace internal
}  // namespace miniray
