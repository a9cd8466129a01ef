#include "ml/data/shard.h"

#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;

TEST(ContiguousShardTest, SplitsCifar10OnFourWorkers) {
  for (int shard_id = 0; shard_id < 4; ++shard_id) {
    ASSERT_OK_AND_ASSIGN(const ShardRange range,
                         ContiguousShard(50000, shard_id, 4));
    EXPECT_EQ(range, (ShardRange{shard_id * 12500, (shard_id + 1) * 12500}));
    EXPECT_EQ(range.size(), 12500);
  }
}

TEST(ContiguousShardTest, GivesTheFirstShardsTheRemainder) {
  const ShardRange expected[] = {{0, 3}, {3, 6}, {6, 8}, {8, 10}};
  for (int shard_id = 0; shard_id < 4; ++shard_id) {
    ASSERT_OK_AND_ASSIGN(const ShardRange range,
                         ContiguousShard(10, shard_id, 4));
    EXPECT_EQ(range, expected[shard_id]);
  }
}

TEST(ContiguousShardTest, CoversEverythingOnceInShardsOfEvenSize) {
  for (int64_t total = 1; total <= 60; ++total) {
    for (int num_shards = 1; num_shards <= total; ++num_shards) {
      int64_t next = 0;
      for (int shard_id = 0; shard_id < num_shards; ++shard_id) {
        ASSERT_OK_AND_ASSIGN(const ShardRange range,
                             ContiguousShard(total, shard_id, num_shards));
        ASSERT_EQ(range.begin, next);
        ASSERT_GE(range.size(), total / num_shards);
        ASSERT_LE(range.size(), total / num_shards + 1);
        next = range.end;
      }
      ASSERT_EQ(next, total);
    }
  }
}

TEST(ContiguousShardTest, DoesNotOverflow) {
  ASSERT_OK_AND_ASSIGN(const ShardRange range,
                       ContiguousShard(INT64_MAX, INT32_MAX - 1, INT32_MAX));
  EXPECT_EQ(range.end, INT64_MAX);
}

TEST(ContiguousShardTest, RejectsImpossibleRequestsWithTheNumbers) {
  ExpectError(ContiguousShard(3, 0, 4).status(), kInvalidArgument,
              {"4 shards", "3 items"});
  ExpectError(ContiguousShard(0, 0, 1).status(), kInvalidArgument,
              {"1 shards", "0 items"});
  ExpectError(ContiguousShard(10, 4, 4).status(), kInvalidArgument,
              {"shard_id is 4", "0 to 3", "4 shards"});
  ExpectError(ContiguousShard(10, -1, 4).status(), kInvalidArgument,
              {"shard_id is -1", "0 to 3"});
  ExpectError(ContiguousShard(10, 0, 0).status(), kInvalidArgument,
              {"num_shards is 0"});
  ExpectError(ContiguousShard(10, 0, -2).status(), kInvalidArgument,
              {"num_shards is -2"});
  ExpectError(ContiguousShard(-5, 0, 1).status(), kInvalidArgument, {"-5"});
}

TEST(SelectRangeTest, LimitsBeforeSharding) {
  ASSERT_OK_AND_ASSIGN(
      const ShardRange range,
      SelectRange(1000, {.limit = 10, .shard_id = 1, .num_shards = 2}));
  EXPECT_EQ(range, (ShardRange{5, 10}));
}

TEST(SelectRangeTest, DefaultAndLargeLimitMeanEverything) {
  ASSERT_OK_AND_ASSIGN(const ShardRange all, SelectRange(7, {}));
  EXPECT_EQ(all, (ShardRange{0, 7}));
  ASSERT_OK_AND_ASSIGN(const ShardRange limited, SelectRange(7, {.limit = 8}));
  EXPECT_EQ(limited, (ShardRange{0, 7}));
}

TEST(SelectRangeTest, RejectsBadSelections) {
  ExpectError(SelectRange(7, {.limit = -1}).status(), kInvalidArgument,
              {"limit is -1"});
  ExpectError(SelectRange(7, {.limit = 2, .num_shards = 3}).status(),
              kInvalidArgument, {"3 shards", "2 items"});
}

}  // namespace
}  // namespace miniray::ml
