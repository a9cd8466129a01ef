#include "runtime/runs/curve.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<CurvePoint> PointsOf(const std::vector<double>& values) {
  std::vector<CurvePoint> points;
  for (const double value : values) {
    points.push_back({static_cast<double>(points.size() + 1), value});
  }
  return points;
}

// 1, 2, ... with these values.
void AddAll(const std::vector<double>& values, Curve* curve) {
  const auto begin = static_cast<double>(curve->num_points());
  for (size_t i = 0; i < values.size(); ++i) {
    curve->Add({begin + static_cast<double>(i) + 1, values[i]});
  }
}

std::vector<double> Epochs(const Curve& curve) {
  std::vector<double> epochs;
  for (const CurvePoint& point : curve.Points()) epochs.push_back(point.epoch);
  return epochs;
}

TEST(ThinPointsTest, KeepsTheEndsAndTheLowestAndHighestOfNeighbours) {
  const auto points = PointsOf({7, 5, 1, 9, 4, 2, 8, 3, 6, 0});
  EXPECT_EQ(ThinPoints(points, 10), points);
  EXPECT_EQ(ThinPoints(points, 100), points);
  // Between the ends: 5 1 9 4 and 2 8 3 6.
  EXPECT_THAT(
      ThinPoints(points, 6),
      ElementsAre(CurvePoint{1, 7}, CurvePoint{3, 1}, CurvePoint{4, 9},
                  CurvePoint{6, 2}, CurvePoint{7, 8}, CurvePoint{10, 0}));
  // One group; fewer than 4 points are never asked for.
  for (const size_t max_points : {4, 5, 1, 0}) {
    EXPECT_THAT(ThinPoints(points, max_points),
                ElementsAre(CurvePoint{1, 7}, CurvePoint{3, 1},
                            CurvePoint{4, 9}, CurvePoint{10, 0}));
  }
  EXPECT_THAT(ThinPoints({}, 4), IsEmpty());
}

TEST(ThinPointsTest, OfEqualOnesTheFirstAndTheLastStay) {
  EXPECT_THAT(ThinPoints(PointsOf({3, 3, 3, 3, 3, 3}), 4),
              ElementsAre(CurvePoint{1, 3}, CurvePoint{2, 3}, CurvePoint{5, 3},
                          CurvePoint{6, 3}));
}

// A loss that is no number any more is what its user looks for.
TEST(ThinPointsTest, NanIsNotLost) {
  const auto thinned = ThinPoints(PointsOf({1, 2, kNan, 3, 0, 1}), 4);
  ASSERT_THAT(thinned, SizeIs(4));
  EXPECT_EQ(thinned[1].epoch, 3);
  EXPECT_TRUE(std::isnan(thinned[1].value));
  EXPECT_EQ(thinned[2], (CurvePoint{5, 0}));
}

TEST(CurveTest, KeepsAllUpToItsLimit) {
  Curve curve(8);
  AddAll({5, 1, 9, 4, 2, 8, 3, 7}, &curve);
  EXPECT_EQ(curve.Points(), PointsOf({5, 1, 9, 4, 2, 8, 3, 7}));
  EXPECT_EQ(curve.num_points(), 8);
}

// By hand: groups of four (5 1 9 4, 2 8 3 7), then of eight.
TEST(CurveTest, ThinsOldAndNewPointsAlike) {
  Curve curve(8);
  AddAll({5, 1, 9, 4, 2, 8, 3, 7, 6}, &curve);
  EXPECT_THAT(curve.Points(),
              ElementsAre(CurvePoint{2, 1}, CurvePoint{3, 9}, CurvePoint{5, 2},
                          CurvePoint{6, 8}, CurvePoint{9, 6}));
  EXPECT_EQ(curve.num_points(), 9);
  AddAll({0, 10, 5, 1, 2, 3, 4}, &curve);
  EXPECT_THAT(curve.Points(),
              ElementsAre(CurvePoint{2, 1}, CurvePoint{3, 9}, CurvePoint{10, 0},
                          CurvePoint{11, 10}));
  EXPECT_EQ(curve.num_points(), 16);
  EXPECT_EQ(curve.last(), (CurvePoint{11, 10}));
}

// The numbers of std::minstd_rand0.
TEST(CurveTest, StaysWithinItsLimitAndKeepsItsShape) {
  Curve curve(64);
  std::vector<CurvePoint> added;
  int64_t seed = 1;
  for (int i = 1; i <= 100000; ++i) {
    seed = seed * 16807 % 2147483647;
    added.push_back(
        {static_cast<double>(i), static_cast<double>(seed % 1000003)});
    curve.Add(added.back());
    ASSERT_LE(curve.size(), 64u) << i;
  }
  const std::vector<CurvePoint> kept = curve.Points();
  EXPECT_EQ(kept.size(), curve.size());
  // A Python program that thins in the same way keeps 50.
  EXPECT_THAT(kept, SizeIs(50));
  const auto lower = [](const CurvePoint& a, const CurvePoint& b) {
    return a.value < b.value;
  };
  EXPECT_EQ(std::min_element(kept.begin(), kept.end(), lower)->value,
            std::min_element(added.begin(), added.end(), lower)->value);
  EXPECT_EQ(std::max_element(kept.begin(), kept.end(), lower)->value,
            std::max_element(added.begin(), added.end(), lower)->value);
  int in_first_half = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) {
      ASSERT_LT(kept[i - 1].epoch, kept[i].epoch);
    }
    EXPECT_EQ(kept[i], added[static_cast<size_t>(kept[i].epoch) - 1]);
    if (kept[i].epoch <= 50000) ++in_first_half;
  }
  EXPECT_EQ(in_first_half, 24);
}

TEST(CurveTest, APointThatComesLateFindsItsPlace) {
  Curve curve(8);
  for (const double epoch : {1, 2, 4, 3, 5}) curve.Add({epoch, 10 * epoch});
  EXPECT_THAT(Epochs(curve), ElementsAre(1, 2, 3, 4, 5));
  // Also where points are thinned: 12 are groups of four, all but 20.
  AddAll({6, 7, 8, 9, 10, 11, 12}, &curve);
  curve.Add({20, 1});
  curve.Add({15, 2});
  const std::vector<double> epochs = Epochs(curve);
  EXPECT_TRUE(std::is_sorted(epochs.begin(), epochs.end()));
  EXPECT_EQ(epochs.back(), 20);
  EXPECT_EQ(epochs[epochs.size() - 2], 15);
  EXPECT_LE(epochs.size(), 8u);
}

TEST(CurveTest, ForgetsWhatIsBehindAnEpoch) {
  Curve curve(8);
  AddAll({1, 2, 3, 4, 5}, &curve);
  curve.Truncate(5);
  EXPECT_EQ(curve.num_points(), 5);
  curve.Truncate(2.5);
  EXPECT_EQ(curve.Points(), PointsOf({1, 2}));
  EXPECT_EQ(curve.num_points(), 2);
  curve.Truncate(0);
  EXPECT_TRUE(curve.empty());
  EXPECT_EQ(curve.num_points(), 0);
  // And goes on as if new.
  AddAll({5, 1, 9, 4, 2, 8, 3, 7}, &curve);
  EXPECT_EQ(curve.Points(), PointsOf({5, 1, 9, 4, 2, 8, 3, 7}));
}

TEST(CurveTest, ForgetsOfThinnedPointsToo) {
  Curve curve(8);
  AddAll({5, 1, 9, 4, 2, 8, 3, 7, 6, 0}, &curve);
  // Kept: 2, 3, 5, 6, and the open group of 9 and 10.
  curve.Truncate(5);
  EXPECT_THAT(Epochs(curve), ElementsAre(2, 3, 5));
  EXPECT_EQ(curve.num_points(), 5);  // 10 * 3 / 6.
}

TEST(CurveTest, ALowerLimitThins) {
  Curve curve(16);
  AddAll({5, 1, 9, 4, 2, 8, 3, 7, 6, 0, 1, 2}, &curve);
  ASSERT_EQ(curve.size(), 12u);
  curve.SetMaxPoints(8);
  EXPECT_THAT(Epochs(curve), ElementsAre(2, 3, 5, 6, 9, 10));
  EXPECT_EQ(curve.num_points(), 12);
}

TEST(CurveTest, GoesOnWhereItWasStored) {
  Curve curve(8);
  // Within a group: three of four.
  AddAll({5, 1, 9, 4, 2, 8, 3, 7, 6, 0, 2}, &curve);
  v1::StoredCurve stored;
  curve.Store(&stored);
  Curve loaded = Curve::Load(stored, 8);
  EXPECT_EQ(loaded.Points(), curve.Points());
  EXPECT_EQ(loaded.num_points(), 11);
  for (int i = 12; i < 40; ++i) {
    const CurvePoint point = {static_cast<double>(i),
                              static_cast<double>(i * 7 % 11)};
    curve.Add(point);
    loaded.Add(point);
    ASSERT_EQ(loaded.Points(), curve.Points()) << i;
  }
}

}  // namespace
}  // namespace miniray
