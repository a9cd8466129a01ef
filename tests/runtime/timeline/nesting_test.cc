#include "runtime/timeline/nesting.h"

#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using Placed = std::tuple<std::string, int64_t, int64_t, int>;

std::vector<Placed> Nested(int max_rows, std::vector<Slice> slices) {
  Nest(max_rows, &slices);
  std::vector<Placed> placed;
  for (const Slice& slice : slices) {
    placed.emplace_back(slice.name, slice.start, slice.end, slice.row);
  }
  return placed;
}

TEST(NestTest, NothingIsNothing) { EXPECT_THAT(Nested(1, {}), ElementsAre()); }

TEST(NestTest, WhatLiesWithinOrBesideSharesARow) {
  EXPECT_THAT(
      Nested(3, {{"epoch 1", 100, 200},
                 {"sync", 90, 100},
                 {"epoch 0", 0, 100},
                 {"step", 90, 95}}),
      ElementsAre(Placed("epoch 0", 0, 100, 0), Placed("sync", 90, 100, 0),
                  Placed("step", 90, 95, 0), Placed("epoch 1", 100, 200, 0)));
}

TEST(NestTest, WhatOverlapsHasARowOfItsOwn) {
  EXPECT_THAT(Nested(3, {{"a", 0, 10}, {"b", 5, 15}, {"c", 8, 20}}),
              ElementsAre(Placed("a", 0, 10, 0), Placed("b", 5, 15, 1),
                          Placed("c", 8, 20, 2)));
  // Row 0 is free again.
  EXPECT_THAT(Nested(3, {{"a", 0, 10}, {"b", 5, 15}, {"c", 10, 20}}),
              ElementsAre(Placed("a", 0, 10, 0), Placed("b", 5, 15, 1),
                          Placed("c", 10, 20, 0)));
}

TEST(NestTest, WithoutARowItEndsWithTheOneAround) {
  EXPECT_THAT(Nested(2, {{"a", 0, 10}, {"b", 5, 15}, {"c", 8, 20}}),
              ElementsAre(Placed("a", 0, 10, 0), Placed("b", 5, 15, 1),
                          Placed("c", 8, 15, 1)));
  EXPECT_THAT(Nested(1, {{"a", 0, 10}, {"b", 5, 15}}),
              ElementsAre(Placed("a", 0, 10, 0), Placed("b", 5, 10, 0)));
}

TEST(NestTest, TheSameTimesAndNoTimeAtAll) {
  EXPECT_THAT(Nested(2, {{"a", 5, 9}, {"b", 5, 9}, {"point", 5, 5}}),
              ElementsAre(Placed("a", 5, 9, 0), Placed("b", 5, 9, 0),
                          Placed("point", 5, 5, 0)));
}

TEST(NestTest, TimesThatMakeNoSense) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Nested(2, {{"back", 7, -most}, {"for ever", -most - 1, most}}),
              ElementsAre(Placed("for ever", -most - 1, most, 0),
                          Placed("back", 7, 7, 0)));
}

}  // namespace
}  // namespace miniray
