#include "train/sharding.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray::train {
namespace {

using absl::StatusCode::kInvalidArgument;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Items = std::vector<int64_t>;

// All shards, by shard_id.
std::vector<Items> AllShards(int64_t num_items, int num_shards,
                             const Sharding& sharding) {
  std::vector<Items> shards;
  for (int shard_id = 0; shard_id < num_shards; ++shard_id) {
    auto items = ShardItems(num_items, shard_id, num_shards, sharding);
    EXPECT_THAT(items, IsOk()) << num_items << " on " << num_shards;
    shards.push_back(items.ok() ? *std::move(items) : Items());
  }
  return shards;
}

void ExpectEachItemOnce(const std::vector<Items>& shards, int64_t num_items) {
  std::vector<int> times(static_cast<size_t>(num_items));
  for (const Items& shard : shards) {
    for (const int64_t item : shard) ++times.at(static_cast<size_t>(item));
  }
  EXPECT_EQ(times, std::vector<int>(static_cast<size_t>(num_items), 1));
}

TEST(ShardItemsTest, EachItemIsInOneShardAndSizesDifferByOneAtMost) {
  for (const ShardMethod method :
       {ShardMethod::kContiguous, ShardMethod::kStrided,
        ShardMethod::kShuffled}) {
    for (int64_t num_items = 1; num_items <= 40; ++num_items) {
      for (int num_shards = 1; num_shards <= num_items; ++num_shards) {
        SCOPED_TRACE(std::string(ShardMethodName(method)) + ": " +
                     std::to_string(num_items) + " on " +
                     std::to_string(num_shards));
        const auto shards =
            AllShards(num_items, num_shards, {.method = method, .seed = 5});
        ExpectEachItemOnce(shards, num_items);
        for (const Items& shard : shards) {
          ASSERT_GE(shard.size(), num_items / num_shards);
          ASSERT_LE(shard.size(), num_items / num_shards + 1);
        }
      }
    }
  }
}

TEST(ShardItemsTest, ContiguousShardsAreRanges) {
  EXPECT_THAT(AllShards(10, 4, {}), ElementsAre(Items{0, 1, 2}, Items{3, 4, 5},
                                                Items{6, 7}, Items{8, 9}));
}

TEST(ShardItemsTest, StridedShardsTakeEveryNth) {
  EXPECT_THAT(
      AllShards(10, 4, {.method = ShardMethod::kStrided}),
      ElementsAre(Items{0, 4, 8}, Items{1, 5, 9}, Items{2, 6}, Items{3, 7}));
}

TEST(ShardItemsTest, ShuffledShardsHangOnTheSeedOnly) {
  const Sharding seven = {.method = ShardMethod::kShuffled, .seed = 7};
  const auto shards = AllShards(1000, 3, seven);
  EXPECT_EQ(AllShards(1000, 3, seven), shards);
  EXPECT_NE(AllShards(1000, 3, {.method = ShardMethod::kShuffled, .seed = 8}),
            shards);
  // Fewer shards cut the same permutation elsewhere.
  Items joined;
  for (const Items& shard : shards) {
    joined.insert(joined.end(), shard.begin(), shard.end());
  }
  EXPECT_EQ(AllShards(1000, 1, seven)[0], joined);
  EXPECT_FALSE(std::is_sorted(joined.begin(), joined.end()));
}

// With 6,000 seeds each of the 6 orders of 3 items comes 1,000 times; six
// standard deviations are 173.
TEST(ShardItemsTest, EachPermutationIsAsLikely) {
  std::map<Items, int> counts;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    ++counts[*ShardItems(3, 0, 1,
                         {.method = ShardMethod::kShuffled, .seed = seed})];
  }
  ASSERT_EQ(counts.size(), 6);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 173);
}

TEST(ShardItemsTest, ByClassNoClassIsDivided) {
  // Label 5 six times, 2 three times, 9 twice, 1 once: the largest first, each
  // to the smallest shard.
  const std::vector<int64_t> labels = {5, 2, 5, 9, 5, 1, 2, 5, 9, 5, 2, 5};
  const Sharding sharding = {.method = ShardMethod::kByClass, .labels = labels};
  EXPECT_THAT(AllShards(12, 2, sharding),
              ElementsAre(Items{0, 2, 4, 7, 9, 11}, Items{1, 3, 5, 6, 8, 10}));
  EXPECT_THAT(
      AllShards(12, 3, sharding),
      ElementsAre(Items{0, 2, 4, 7, 9, 11}, Items{1, 6, 10}, Items{3, 5, 8}));
  EXPECT_THAT(AllShards(12, 4, sharding),
              ElementsAre(Items{0, 2, 4, 7, 9, 11}, Items{1, 6, 10},
                          Items{3, 8}, Items{5}));
}

TEST(ShardItemsTest, ByClassNeedsLabelsAndEnoughClasses) {
  const std::vector<int64_t> labels = {1, 1, 2, 2, 2, 2};
  Sharding sharding = {.method = ShardMethod::kByClass, .labels = labels};
  EXPECT_THAT(ShardItems(6, 0, 3, sharding),
              StatusIs(kInvalidArgument,
                       HasSubstr("3 shards by class of only 2 classes")));
  EXPECT_THAT(
      ShardItems(7, 0, 2, sharding),
      StatusIs(kInvalidArgument, HasSubstr("labels of all 7 items, got 6")));
  sharding.labels = {};
  EXPECT_THAT(ShardItems(6, 0, 2, sharding),
              StatusIs(kInvalidArgument, HasSubstr("got 0")));
}

TEST(ShardItemsTest, AFunctionSaysWhereEachItemGoes) {
  Sharding sharding = {.method = ShardMethod::kFunction};
  sharding.shard_of = [](int64_t item, int num_shards) {
    return item < 2 ? 0 : num_shards - 1;
  };
  EXPECT_THAT(AllShards(5, 2, sharding),
              ElementsAre(Items{0, 1}, Items{2, 3, 4}));
  EXPECT_THAT(ShardItems(5, 1, 3, sharding),
              StatusIs(kInvalidArgument,
                       HasSubstr("leaves shard 1 of 3 without any of the 5")));
  sharding.shard_of = [](int64_t item, int num_shards) {
    return item == 3 ? num_shards : 0;
  };
  EXPECT_THAT(ShardItems(5, 0, 2, sharding),
              StatusIs(kInvalidArgument,
                       HasSubstr("item 3 into shard 2; expected 0 to 1")));
  sharding.shard_of = nullptr;
  EXPECT_THAT(ShardItems(5, 0, 2, sharding),
              StatusIs(kInvalidArgument, HasSubstr("Sharding::shard_of")));
}

TEST(ShardItemsTest, EmptyShardsAndOthersThatCannotBeAreErrors) {
  const std::vector<int64_t> labels = {1, 2, 3};
  for (const ShardMethod method :
       {ShardMethod::kContiguous, ShardMethod::kStrided, ShardMethod::kShuffled,
        ShardMethod::kByClass, ShardMethod::kFunction}) {
    const Sharding sharding = {.method = method,
                               .labels = labels,
                               .shard_of = [](int64_t, int) { return 0; }};
    SCOPED_TRACE(std::string(ShardMethodName(method)));
    for (int shard_id = 0; shard_id < 4; ++shard_id) {
      EXPECT_THAT(ShardItems(3, shard_id, 4, sharding),
                  StatusIs(kInvalidArgument,
                           AllOf(HasSubstr("4 shards of only 3 items"),
                                 HasSubstr("use at most 3 shards"))));
    }
    EXPECT_THAT(ShardItems(3, 2, 2, sharding),
                StatusIs(kInvalidArgument, HasSubstr("shard_id is 2")));
    EXPECT_THAT(ShardItems(3, -1, 2, sharding),
                StatusIs(kInvalidArgument, HasSubstr("shard_id is -1")));
    EXPECT_THAT(ShardItems(3, 0, 0, sharding),
                StatusIs(kInvalidArgument, HasSubstr("num_shards is 0")));
    EXPECT_THAT(ShardItems(-1, 0, 1, sharding),
                StatusIs(kInvalidArgument, HasSubstr("-1 items")));
    EXPECT_THAT(ShardItems(0, 0, 1, sharding),
                StatusIs(kInvalidArgument, HasSubstr("of only 0 items")));
  }
}

TEST(ShardingFromConfigTest, ReadsMethodAndSeed) {
  const auto plain = ShardingFromConfig({});
  ASSERT_THAT(plain, IsOk());
  EXPECT_EQ(plain->method, ShardMethod::kContiguous);
  for (const ShardMethod method :
       {ShardMethod::kContiguous, ShardMethod::kStrided, ShardMethod::kShuffled,
        ShardMethod::kByClass, ShardMethod::kFunction}) {
    const auto sharding =
        ShardingFromConfig({{"sharding", std::string(ShardMethodName(method))},
                            {"sharding_seed", 9}});
    ASSERT_THAT(sharding, IsOk());
    EXPECT_EQ(sharding->method, method);
    EXPECT_EQ(sharding->seed, 9);
  }
  EXPECT_THAT(ShardingFromConfig({{"sharding", "random"}}),
              StatusIs(kInvalidArgument,
                       HasSubstr("sharding is 'random'; expected one of "
                                 "contiguous, strided, shuffled")));
  EXPECT_THAT(ShardingFromConfig({{"sharding_seed", "x"}}),
              StatusIs(kInvalidArgument, HasSubstr("sharding_seed")));
}

}  // namespace
}  // namespace miniray::train
