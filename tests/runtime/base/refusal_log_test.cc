#include "runtime/base/refusal_log.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RefusalLimiterTest, AFloodIsCountedAndNothingIsLost) {
  RefusalLimiter limiter;
  const absl::Time start = absl::FromUnixSeconds(1000);
  int64_t lines = 0, told = 0;
  constexpr int kFlood = 60000;
  for (int i = 0; i < kFlood; ++i) {  // One a millisecond, for a minute.
    if (auto silent = limiter.Admit(start + absl::Milliseconds(i))) {
      ++lines;
      told += 1 + *silent;
    }
  }
  EXPECT_LE(lines, kRefusalBurst + 60 * kRefusalsPerSecond);
  EXPECT_GE(lines, kRefusalBurst + 59 * kRefusalsPerSecond);
  // The next one tells of those since.
  const auto silent = limiter.Admit(start + absl::Minutes(2));
  ASSERT_TRUE(silent.has_value());
  EXPECT_EQ(told + 1 + *silent, kFlood + 1);
}

TEST(RefusalLimiterTest, AFewHaveALineEach) {
  RefusalLimiter limiter;
  const absl::Time now = absl::FromUnixSeconds(1000);
  for (int i = 0; i < kRefusalBurst; ++i) {
    EXPECT_EQ(limiter.Admit(now), 0) << i;
  }
  EXPECT_EQ(limiter.Admit(now), std::nullopt);
  // A clock that is set back neither admits all nor blocks for ever.
  EXPECT_EQ(limiter.Admit(now - absl::Hours(1)), std::nullopt);
  EXPECT_EQ(limiter.Admit(now + absl::Seconds(1)), 2);
}

TEST(RefusalTextTest, IsOneShortLineWhateverThePeerSent) {
  const std::string text = RefusalText("ipv4:1.2.3.4:5", "Get\nActor",
                                       std::string(100000, '\x01'), 7);
  EXPECT_THAT(text, AllOf(HasSubstr("refused Get?Actor from ipv4:1.2.3.4:5"),
                          HasSubstr("and 7 more"), Not(HasSubstr("\n"))));
  EXPECT_LT(text.size(), 2000);
}

}  // namespace
}  // namespace miniray
