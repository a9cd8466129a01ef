#include "runtime/worker/clock_offset.h"

#include <optional>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

constexpr absl::Duration kMs = absl::Milliseconds(1);

// A round trip that begins at `asked`; the other clock is read after `there`
// of it. This one is `ahead`.
void AddRound(ClockOffset* clock, absl::Duration asked, absl::Duration trip,
              absl::Duration there, absl::Duration ahead) {
  const absl::Time other = absl::UnixEpoch() + absl::Hours(1);
  clock->Add(asked, asked + trip, other + asked + trip + ahead,
             other + asked + there);
}

double Ms(absl::Duration duration) {
  return absl::ToDoubleMilliseconds(duration);
}

TEST(ClockOffsetTest, KnowsNothingAtFirst) {
  EXPECT_FALSE(ClockOffset().Get(absl::Seconds(1)).has_value());
}

TEST(ClockOffsetTest, HalfOfTheRoundTripIsTheError) {
  // Read at the very start, in the middle and at the very end: 5 ms off at
  // most.
  for (const int there : {0, 5, 10}) {
    ClockOffset clock;
    AddRound(&clock, absl::Seconds(7), 10 * kMs, there * kMs,
             absl::Seconds(-3));
    const auto estimate = clock.Get(absl::Seconds(7) + 10 * kMs);
    ASSERT_TRUE(estimate.has_value());
    EXPECT_NEAR(Ms(estimate->error), 5, 1e-6);
    // here - trip / 2 - there = ahead + (trip / 2 - there).
    EXPECT_NEAR(Ms(estimate->ahead), -3000 + 5 - there, 1e-6);
  }
}

TEST(ClockOffsetTest, ASlowAnswerSpoilsNothing) {
  ClockOffset clock;
  AddRound(&clock, absl::Seconds(0), 2 * kMs, 1 * kMs, absl::Seconds(1));
  AddRound(&clock, absl::Seconds(3), 900 * kMs, 0 * kMs, absl::Seconds(1));
  const auto estimate = clock.Get(absl::Seconds(4));
  ASSERT_TRUE(estimate.has_value());
  EXPECT_NEAR(Ms(estimate->ahead), 1000, 1e-6);
  // 1 ms, and 0.0001 of the 3.998 s since then.
  EXPECT_NEAR(Ms(estimate->error), 1.3998, 1e-6);
}

TEST(ClockOffsetTest, AnOldReadingGivesWayToANewOne) {
  ClockOffset clock;
  AddRound(&clock, absl::Seconds(0), 2 * kMs, 1 * kMs, absl::Seconds(1));
  // The clocks have drifted: 1 ms in 100 s, which is within what is allowed.
  AddRound(&clock, absl::Seconds(100), 4 * kMs, 2 * kMs,
           absl::Seconds(1) + 1 * kMs);
  const auto estimate = clock.Get(absl::Seconds(100) + 4 * kMs);
  ASSERT_TRUE(estimate.has_value());
  // The old one would be 1 ms + 10 ms off.
  EXPECT_NEAR(Ms(estimate->ahead), 1001, 1e-6);
  EXPECT_NEAR(Ms(estimate->error), 2, 1e-6);
}

TEST(ClockOffsetTest, AClockThatWasSetIsNoticedAtOnce) {
  ClockOffset clock;
  for (int i = 0; i < 5; ++i) {
    AddRound(&clock, absl::Seconds(3 * i), 1 * kMs, 0 * kMs, absl::Seconds(0));
  }
  // A worse reading than the earlier ones, but they cannot be true any more.
  AddRound(&clock, absl::Seconds(15), 100 * kMs, 50 * kMs, absl::Seconds(60));
  const auto estimate = clock.Get(absl::Seconds(16));
  ASSERT_TRUE(estimate.has_value());
  EXPECT_NEAR(Ms(estimate->ahead), 60000, 1e-6);
}

TEST(ClockOffsetTest, OnlyTheLastReadingsAreKept) {
  ClockOffset clock;
  AddRound(&clock, absl::Seconds(0), 2 * kMs, 1 * kMs, absl::Seconds(0));
  for (int i = 0; i < ClockOffset::kKept; ++i) {
    AddRound(&clock, absl::Seconds(1) + i * 10 * kMs, 8 * kMs, 4 * kMs,
             absl::Seconds(0));
  }
  const absl::Duration last =
      absl::Seconds(1) + (ClockOffset::kKept - 1) * 10 * kMs + 8 * kMs;
  // With the first one it would be 1 ms + 0.0001 of a second.
  EXPECT_NEAR(Ms(clock.Get(last)->error), 4, 1e-6);
}

TEST(ClockOffsetTest, AClockThatWentBackIsPassedOver) {
  ClockOffset clock;
  clock.Add(absl::Seconds(2), absl::Seconds(1), absl::UnixEpoch(),
            absl::UnixEpoch());
  EXPECT_FALSE(clock.Get(absl::Seconds(2)).has_value());
}

TEST(ClockOffsetTest, SteadyNeverGoesBack) {
  const absl::Duration before = ClockOffset::Steady();
  EXPECT_GT(before, absl::ZeroDuration());
  EXPECT_GE(ClockOffset::Steady(), before);
}

}  // namespace
}  // namespace miniray
