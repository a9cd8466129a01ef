#include "ml/data/friedman.h"

#include <cmath>
#include <numbers>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;

TEST(FriedmanTest, ItsNoiseIsNormalOfVarianceOne) {
  constexpr int64_t kRows = 20000;
  ASSERT_OK_AND_ASSIGN(const NumberTable table, MakeFriedmanTable(kRows, 3));
  ASSERT_EQ(table.num_rows(), kRows);
  ASSERT_EQ(table.num_columns(), 11);
  EXPECT_EQ(table.columns.front(), "x1");
  EXPECT_EQ(table.columns.back(), "y");
  double sum = 0, squares = 0, fourths = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    const double* const x = &table.values[row * 11];
    for (int i = 0; i < 10; ++i) {
      ASSERT_GE(x[i], 0);
      ASSERT_LT(x[i], 1);
    }
    const double noise = x[10] - 10 * std::sin(std::numbers::pi * x[0] * x[1]) -
                         20 * std::pow(x[2] - 0.5, 2) - 10 * x[3] - 5 * x[4];
    sum += noise;
    squares += noise * noise;
    fourths += std::pow(noise, 4);
  }
  // Five standard errors: 1, sqrt(2) and sqrt(96) over the root of the rows.
  const double root = std::sqrt(static_cast<double>(kRows));
  EXPECT_NEAR(sum / kRows, 0, 5 / root);
  EXPECT_NEAR(squares / kRows, 1, 5 * 1.42 / root);
  EXPECT_NEAR(fourths / kRows, 3, 5 * 9.8 / root);
}

TEST(FriedmanTest, TheSeedDecides) {
  ASSERT_OK_AND_ASSIGN(const NumberTable one, MakeFriedmanTable(5, 1));
  ASSERT_OK_AND_ASSIGN(const NumberTable same, MakeFriedmanTable(5, 1));
  ASSERT_OK_AND_ASSIGN(const NumberTable other, MakeFriedmanTable(5, 2));
  EXPECT_EQ(one.values, same.values);
  EXPECT_NE(one.values, other.values);
}

TEST(FriedmanTest, RefusesSizesThatCannotBe) {
  ExpectError(MakeFriedmanTable(0, 1).status(), kInvalidArgument, {"0 rows"});
  ExpectError(MakeFriedmanTable(int64_t{1} << 25, 1).status(), kInvalidArgument,
              {"33554432 rows"});
}

}  // namespace
}  // namespace miniray::ml
