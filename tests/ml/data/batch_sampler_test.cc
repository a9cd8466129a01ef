#include "ml/data/batch_sampler.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/data/mix64.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;
using ::testing::ElementsAre;

std::vector<int64_t> Order(int64_t size, uint64_t seed, int64_t epoch) {
  return BatchSampler::Create(size, 1, seed, false)->Epoch(epoch).order();
}

TEST(Mix64Test, MatchesSplitMix64) {
  // The first output of Vigna's splitmix64.c from state 0.
  EXPECT_EQ(Mix64(0), 0xe220a8397b1dcdafu);
}

// Computed by a program of its own (Mersenne Twister, draws and swaps written
// from the description in the header). A change here changes every training
// run.
TEST(BatchSamplerTest, OrderIsTheSameOnEveryPlatform) {
  EXPECT_THAT(Order(10, 1, 0), ElementsAre(5, 0, 8, 7, 3, 1, 9, 6, 4, 2));
  EXPECT_THAT(Order(10, 1, 1), ElementsAre(6, 2, 8, 7, 4, 5, 9, 3, 0, 1));
  EXPECT_THAT(Order(10, 2, 0), ElementsAre(4, 9, 8, 5, 0, 7, 6, 2, 3, 1));
  uint64_t hash = 0;
  for (int64_t index : Order(50000, 7, 3)) hash = hash * 31 + index;
  EXPECT_EQ(hash, 15843805253245376960u);
}

TEST(BatchSamplerTest, EveryEpochIsAPermutation) {
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> order = Order(1001, 3, epoch);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < 1001; ++i) ASSERT_EQ(order[i], i);
  }
}

TEST(BatchSamplerTest, DrawsAllPermutationsEvenly) {
  std::map<std::vector<int64_t>, int> seen;
  for (int64_t epoch = 0; epoch < 6000; ++epoch) ++seen[Order(3, 11, epoch)];
  EXPECT_EQ(seen.size(), 6u);
  // 1000 expected each; the deviation is 29.
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, 1000, 150);
}

TEST(BatchSamplerTest, BatchesCoverTheEpochInOrder) {
  ASSERT_OK_AND_ASSIGN(const BatchSampler sampler,
                       BatchSampler::Create(10, 4, 1, /*drop_last=*/false));
  EXPECT_EQ(sampler.num_batches(), 3);
  const EpochBatches batches = sampler.Epoch(0);
  ASSERT_EQ(batches.size(), 3);
  EXPECT_THAT(batches[0], ElementsAre(5, 0, 8, 7));
  EXPECT_THAT(batches[1], ElementsAre(3, 1, 9, 6));
  EXPECT_THAT(batches[2], ElementsAre(4, 2));
}

TEST(BatchSamplerTest, DropLastLeavesOutTheShortBatch) {
  ASSERT_OK_AND_ASSIGN(const BatchSampler sampler,
                       BatchSampler::Create(10, 4, 1, /*drop_last=*/true));
  EXPECT_EQ(sampler.num_batches(), 2);
  const EpochBatches batches = sampler.Epoch(0);
  ASSERT_EQ(batches.size(), 2);
  EXPECT_THAT(batches[1], ElementsAre(3, 1, 9, 6));
}

TEST(BatchSamplerTest, FullBatchesNeedNoDropping) {
  for (bool drop_last : {false, true}) {
    ASSERT_OK_AND_ASSIGN(const BatchSampler sampler,
                         BatchSampler::Create(12, 4, 1, drop_last));
    EXPECT_EQ(sampler.num_batches(), 3);
    EXPECT_EQ(sampler.Epoch(5)[2].size(), 4u);
  }
}

TEST(BatchSamplerTest, ALargeBatchHoldsEverything) {
  ASSERT_OK_AND_ASSIGN(const BatchSampler sampler,
                       BatchSampler::Create(3, 128, 1, /*drop_last=*/false));
  EXPECT_EQ(sampler.num_batches(), 1);
  EXPECT_EQ(sampler.Epoch(0)[0].size(), 3u);
}

TEST(BatchSamplerTest, RejectsBadSizes) {
  ExpectError(BatchSampler::Create(0, 4, 1, false).status(), kInvalidArgument,
              {"0 items"});
  ExpectError(BatchSampler::Create(-1, 4, 1, false).status(), kInvalidArgument,
              {"-1 items"});
  ExpectError(BatchSampler::Create(10, 0, 1, false).status(), kInvalidArgument,
              {"batch_size is 0"});
  ExpectError(BatchSampler::Create(10, -4, 1, false).status(), kInvalidArgument,
              {"batch_size is -4"});
  ExpectError(BatchSampler::Create(10, 11, 1, true).status(), kInvalidArgument,
              {"batch_size is 11", "10 items", "drop_last"});
}

}  // namespace
}  // namespace miniray::ml
