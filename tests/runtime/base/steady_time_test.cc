#include "runtime/base/steady_time.h"

#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

TEST(SteadyNowTest, GoesOnFromTheTimeOfDay) {
  const absl::Time first = SteadyNow();
  EXPECT_LT(absl::AbsDuration(absl::Now() - first), absl::Minutes(1));
  absl::Time last = first;
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = SteadyNow();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SteadyNotificationTest, WaitsForItsTimeout) {
  const SteadyNotification never;
  EXPECT_FALSE(never.WaitForNotificationWithTimeout(-absl::Seconds(1)));
  const absl::Time begin = SteadyNow();
  EXPECT_FALSE(never.WaitForNotificationWithTimeout(absl::Milliseconds(20)));
  EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(19));
  EXPECT_FALSE(never.HasBeenNotified());
}

TEST(SteadyNotificationTest, WakesWhoeverWaits) {
  SteadyNotification came;
  bool woken = false;
  std::thread waiter([&] {
    woken = came.WaitForNotificationWithTimeout(absl::InfiniteDuration());
  });
  came.Notify();
  waiter.join();
  EXPECT_TRUE(woken);
  EXPECT_TRUE(came.HasBeenNotified());
  EXPECT_TRUE(came.WaitForNotificationWithTimeout(absl::ZeroDuration()));
}

}  // namespace
}  // namespace miniray
