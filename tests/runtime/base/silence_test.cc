#include "runtime/base/silence.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SilenceTest, TimesThatMakeNoSenseAreRefused) {
  EXPECT_THAT(ParseSilenceTimeout("2s"), IsOkAndHolds(absl::Seconds(2)));
  EXPECT_THAT(ParseSilenceTimeout("24h"), IsOkAndHolds(absl::Hours(24)));
  for (const char* text : {"", "20", "1.9s", "24h1s", "-20s", "soon", "inf"}) {
    EXPECT_THAT(
        ParseSilenceTimeout(text),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(text), HasSubstr("between 2s and 24h"))))
        << text;
  }
}

TEST(SilenceTest, TheVariableSaysIt) {
  setenv(kSilenceTimeoutVariable, "1m", /*replace=*/1);
  EXPECT_EQ(SilenceTimeout(), absl::Minutes(1));
  // A peer that knows nothing of it hears as much as ever.
  EXPECT_EQ(SignOfLifePeriod(), absl::Seconds(5));
  unsetenv(kSilenceTimeoutVariable);
  EXPECT_EQ(SilenceTimeout(), absl::Minutes(1));
}

}  // namespace
}  // namespace miniray
