#include "ml/examples/line_searcher.h"

#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

// The points are those of y = 3 x - 2, x = -1, -0.9, ..., 1, whose x^2 have the
// mean 2 (0.1^2 + ... + 1) / 21 = 7.7 / 21. So the error is
// (slope - 3)^2 * 7.7 / 21 + (offset + 2)^2.
TEST(LineSearcherTest, WithoutNoiseItSaysHowWellTheCenterFits) {
  LineSearcher searcher(0);
  EXPECT_NEAR(searcher.Search({.slope = 3, .offset = -2}, 0).error, 0, 1e-12);
  EXPECT_NEAR(searcher.Search({}, 0).error, 9 * 7.7 / 21 + 4, 1e-12);
  EXPECT_NEAR(searcher.Search({.slope = 1, .offset = 1}, 0).error,
              4 * 7.7 / 21 + 9, 1e-12);
}

TEST(LineSearcherTest, FindsABetterLineAndNeverAWorseOne) {
  LineSearcher searcher(0);
  const Line found = searcher.Search({}, 1);
  EXPECT_LT(found.error, 9 * 7.7 / 21 + 4);
  EXPECT_NEAR(searcher.Search(found, 0).error, found.error, 1e-12);
  // Noise that is far too large leaves the center.
  const Line exact = {.slope = 3, .offset = -2};
  const Line kept = searcher.Search(exact, 1000);
  EXPECT_EQ(kept.slope, 3);
  EXPECT_EQ(kept.offset, -2);
}

TEST(LineSearcherTest, WorkersTryOtherLines) {
  LineSearcher one(0), same(0), other(1);
  const Line found = one.Search({}, 1);
  EXPECT_EQ(same.Search({}, 1).slope, found.slope);
  EXPECT_NE(other.Search({}, 1).slope, found.slope);
}

TEST(LineSearcherTest, AnEpochIsALine) {
  EXPECT_EQ(EpochText(2, {.slope = 3, .offset = -2, .error = 0.25}),
            "epoch  3  error 0.250000  y = 3.000 x -2.000");
}

}  // namespace
}  // namespace miniray::ml
