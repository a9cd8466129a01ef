#include "ml/data/skewed_shard.h"

#include <algorithm>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;
using ::testing::ElementsAre;
using ::testing::Pair;

// Ten classes of `each` items, in turn.
std::vector<int64_t> TenClasses(int64_t each) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 10 * each; ++i) labels.push_back(i % 10);
  return labels;
}

std::map<int64_t, int> CountByClass(const std::vector<int64_t>& labels,
                                    const std::vector<int64_t>& shard) {
  std::map<int64_t, int> counts;
  for (const int64_t item : shard) ++counts[labels[item]];
  return counts;
}

TEST(SkewedShardTest, FullSkewSortsByLabel) {
  const std::vector<int64_t> labels = TenClasses(100);
  ASSERT_OK_AND_ASSIGN(const auto first, SkewedShard(labels, 1, 1, 0, 4));
  EXPECT_THAT(CountByClass(labels, first),
              ElementsAre(Pair(0, 100), Pair(1, 100), Pair(2, 50)));
  ASSERT_OK_AND_ASSIGN(const auto last, SkewedShard(labels, 1, 1, 3, 4));
  EXPECT_THAT(CountByClass(labels, last),
              ElementsAre(Pair(7, 50), Pair(8, 100), Pair(9, 100)));
}

TEST(SkewedShardTest, WithoutSkewEveryClassIsInEveryShard) {
  const std::vector<int64_t> labels = TenClasses(1000);
  for (int shard_id = 0; shard_id < 4; ++shard_id) {
    ASSERT_OK_AND_ASSIGN(const auto shard,
                         SkewedShard(labels, 0, 1, shard_id, 4));
    // 250 of each are to be expected, give or take 14.
    for (const auto& [label, count] : CountByClass(labels, shard)) {
      EXPECT_NEAR(count, 250, 70) << label;
    }
  }
}

TEST(SkewedShardTest, HalfSkewIsHalfOfBoth) {
  const std::vector<int64_t> labels = TenClasses(1000);
  ASSERT_OK_AND_ASSIGN(const auto shard, SkewedShard(labels, 0.5, 1, 0, 4));
  auto counts = CountByClass(labels, shard);
  // Of the sorted half class 0 has 500, give or take 16; of the mixed half a
  // quarter of 500, give or take 11. Class 9 has only the latter.
  EXPECT_NEAR(counts[0], 625, 90);
  EXPECT_NEAR(counts[9], 125, 60);
}

TEST(SkewedShardTest, ShardsAreDisjointAndCoverEverything) {
  const std::vector<int64_t> labels = TenClasses(10);
  for (const double skew : {0.0, 0.3, 0.77, 1.0}) {
    for (const int num_shards : {1, 3, 7}) {
      std::vector<int64_t> all;
      for (int id = 0; id < num_shards; ++id) {
        ASSERT_OK_AND_ASSIGN(const auto shard,
                             SkewedShard(labels, skew, 5, id, num_shards));
        EXPECT_LE(
            std::abs(static_cast<double>(shard.size()) - 100.0 / num_shards),
            2.0);
        all.insert(all.end(), shard.begin(), shard.end());
      }
      std::sort(all.begin(), all.end());
      for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(all[i], i);
      EXPECT_EQ(all.size(), 100u);
    }
  }
}

TEST(SkewedShardTest, SeedAndNothingElseDecides) {
  const std::vector<int64_t> labels = TenClasses(10);
  EXPECT_EQ(*SkewedShard(labels, 0.5, 1, 1, 4),
            *SkewedShard(labels, 0.5, 1, 1, 4));
  EXPECT_NE(*SkewedShard(labels, 0.5, 1, 1, 4),
            *SkewedShard(labels, 0.5, 2, 1, 4));
}

TEST(SkewedShardTest, RefusesWhatCannotBe) {
  const std::vector<int64_t> labels = TenClasses(1);
  for (const double skew : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(SkewedShard(labels, skew, 1, 0, 2).status().code(),
              kInvalidArgument);
  }
  EXPECT_EQ(SkewedShard(labels, 0, 1, 2, 2).status().code(), kInvalidArgument);
  EXPECT_EQ(SkewedShard(labels, 0, 1, 0, 0).status().code(), kInvalidArgument);
  EXPECT_EQ(SkewedShard({}, 0, 1, 0, 1).status().code(), kInvalidArgument);
  // Ten items on twenty shards.
  EXPECT_EQ(SkewedShard(labels, 0, 1, 0, 20).status().code(), kInvalidArgument);
}

}  // namespace
}  // namespace miniray::ml
