#include "runtime/client/call_state.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Calls = std::vector<std::shared_ptr<CallState>>;

constexpr absl::Duration kLong = absl::Seconds(30);

Calls NewCalls(int count) {
  Calls calls;
  for (int i = 0; i < count; ++i) {
    calls.push_back(
        std::make_shared<CallState>("Counter.Add " + std::to_string(i)));
  }
  return calls;
}

TEST(CallStateTest, TheFirstOutcomeCounts) {
  CallState call("Counter.Add");
  EXPECT_FALSE(call.done());
  call.Complete(absl::Cord("result"));
  call.Complete(absl::InternalError("late"));
  call.Complete(absl::Cord("later"));
  EXPECT_TRUE(call.done());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(call.Wait(absl::ZeroDuration()).value(), "result");
  }
}

TEST(CallStateTest, FailuresNameTheCall) {
  CallState call("Counter.Add on actor 'c'");
  call.Complete(absl::NotFoundError("no such shelf"));
  EXPECT_THAT(call.Wait(kLong),
              StatusIs(absl::StatusCode::kNotFound,
                       "Counter.Add on actor 'c': no such shelf"));
  EXPECT_THAT(
      CallState::Failed("Counter.Add", absl::AbortedError("x"))->Wait(kLong),
      StatusIs(absl::StatusCode::kAborted, "Counter.Add: x"));
}

TEST(CallStateTest, WaitTimesOutAndTheCallGoesOn) {
  CallState call("Counter.Add");
  for (absl::Duration timeout :
       {absl::Milliseconds(1), absl::ZeroDuration(), -absl::Seconds(1)}) {
    EXPECT_THAT(call.Wait(timeout),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("Counter.Add"),
                               HasSubstr("the call goes on"))));
  }
  call.Complete(absl::Cord("result"));
  EXPECT_THAT(call.Wait(absl::ZeroDuration()), IsOk());
}

TEST(CallStateTest, WaitersInOtherThreadsWake) {
  CallState call("Counter.Add");
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      EXPECT_EQ(call.Wait(absl::InfiniteDuration()).value(), "result");
    });
  }
  call.Complete(absl::Cord("result"));
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(CallStateTest, CallbacksRunOnceNowOrLater) {
  CallState call("Counter.Add");
  std::string order;
  call.OnDone([&] {
    EXPECT_TRUE(call.done());  // Outside the lock.
    order += 'a';
  });
  call.OnDone([&] { order += 'b'; });
  EXPECT_THAT(order, IsEmpty());
  call.Complete(absl::CancelledError());
  EXPECT_EQ(order, "ab");
  call.OnDone([&] { order += 'c'; });
  call.Complete(absl::Cord());
  EXPECT_EQ(order, "abc");
}

TEST(CallStateTest, RacingCompletionsLeaveOneOutcome) {
  for (int round = 0; round < 50; ++round) {
    CallState call("Counter.Add");
    int callbacks = 0;
    call.OnDone([&] { ++callbacks; });
    std::thread other([&] { call.Complete(absl::Cord("a")); });
    call.Complete(absl::Cord("b"));
    const std::string first(call.Wait(kLong).value());
    other.join();
    EXPECT_EQ(callbacks, 1);
    EXPECT_EQ(call.Wait(kLong).value(), first);
  }
}

// --- Several at once.

TEST(WaitForCallsTest, ReturnsWhatIsDoneInOrder) {
  const Calls calls = NewCalls(4);
  EXPECT_THAT(WaitForCalls(calls, 1, absl::ZeroDuration()), IsEmpty());
  calls[3]->Complete(absl::Cord());
  calls[1]->Complete(absl::InternalError("x"));  // Failed is done, too.
  EXPECT_THAT(WaitForCalls(calls, 2, kLong), ElementsAre(1, 3));
  EXPECT_THAT(WaitForCalls(calls, 0, kLong), ElementsAre(1, 3));
  EXPECT_THAT(WaitForCalls(calls, 3, absl::Milliseconds(1)), ElementsAre(1, 3));
}

TEST(WaitForCallsTest, AsksForNoMoreThanThereAre) {
  const Calls calls = NewCalls(2);
  for (const auto& call : calls) call->Complete(absl::Cord());
  EXPECT_THAT(WaitForCalls(calls, 100, kLong), ElementsAre(0, 1));
  EXPECT_THAT(WaitForCalls({}, 5, kLong), IsEmpty());
}

TEST(WaitForCallsTest, EmptyReferencesAndRepetitionsCount) {
  const Calls calls = NewCalls(1);
  EXPECT_THAT(WaitForCalls({nullptr, calls[0]}, 1, kLong), ElementsAre(0));
  calls[0]->Complete(absl::Cord());
  EXPECT_THAT(WaitForCalls({calls[0], calls[0], nullptr}, 3, kLong),
              ElementsAre(0, 1, 2));
}

TEST(WaitForCallsTest, WakesWhenEnoughAreDone) {
  const Calls calls = NewCalls(3);
  std::thread other([&] {
    calls[2]->Complete(absl::Cord());
    calls[0]->Complete(absl::Cord());
  });
  EXPECT_THAT(WaitForCalls(calls, 2, absl::InfiniteDuration()),
              ElementsAre(0, 2));
  other.join();
}

TEST(WaitForCallsTest, CallsThatEndAfterTheWaitDoNoHarm) {
  const Calls calls = NewCalls(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(WaitForCalls(calls, 1, absl::ZeroDuration()), IsEmpty());
  }
  calls[0]->Complete(absl::Cord());
}

TEST(WaitForAllOrFailureTest, AllDone) {
  const Calls calls = NewCalls(3);
  for (const auto& call : calls) call->Complete(absl::Cord());
  EXPECT_THAT(WaitForAllOrFailure(calls, kLong), IsOk());
  EXPECT_THAT(WaitForAllOrFailure({}, absl::ZeroDuration()), IsOk());
}

TEST(CallStateTest, HoldsWhatIsNothingButADeleter) {
  bool released = false;
  auto call = std::make_shared<CallState>("A.B on C");
  EXPECT_FALSE(call->holds());
  call->Hold(std::shared_ptr<void>(nullptr, [&](void*) { released = true; }));
  EXPECT_TRUE(call->holds());
  EXPECT_FALSE(released);
  call = nullptr;
  EXPECT_TRUE(released);
}

TEST(WaitForAllOrFailureTest, TheFirstFailureIsNotWaitedOver) {
  const Calls calls = NewCalls(3);
  std::thread other([&] { calls[1]->Complete(absl::DataLossError("x")); });
  EXPECT_THAT(WaitForAllOrFailure(calls, absl::InfiniteDuration()),
              StatusIs(absl::StatusCode::kDataLoss, "Counter.Add 1: x"));
  other.join();
}

TEST(WaitForAllOrFailureTest, TooLateNamesACallThatIsMissing) {
  const Calls calls = NewCalls(2);
  calls[0]->Complete(absl::Cord());
  EXPECT_THAT(WaitForAllOrFailure(calls, absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("Counter.Add 1")));
}

TEST(WaitForAllOrFailureTest, AnEmptyReferenceIsAnErrorAtOnce) {
  const Calls calls = NewCalls(1);
  EXPECT_THAT(
      WaitForAllOrFailure({calls[0], nullptr}, absl::InfiniteDuration()),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ObjectRef")));
}

}  // namespace
}  // namespace internal
}  // namespace miniray
