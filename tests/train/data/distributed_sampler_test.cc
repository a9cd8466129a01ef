#include "train/data/distributed_sampler.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "torch/serialize/archive.h"

namespace miniray::train {
namespace {

using absl::StatusCode::kInvalidArgument;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Indices = std::vector<size_t>;

DistributedSampler Make(int64_t size, int rank, int world_size,
                        DistributedSampler::Options options = {}) {
  auto sampler = DistributedSampler::Create(size, rank, world_size, options);
  EXPECT_THAT(sampler, IsOk());
  return *std::move(sampler);
}

// At most `batches` batches of what the pass still has.
Indices Take(DistributedSampler& sampler, size_t batch_size,
             int batches = 1 << 30) {
  Indices taken;
  for (int i = 0; i < batches; ++i) {
    const auto batch = sampler.next(batch_size);
    if (!batch.has_value()) break;
    EXPECT_FALSE(batch->empty());
    EXPECT_LE(batch->size(), batch_size);
    taken.insert(taken.end(), batch->begin(), batch->end());
  }
  return taken;
}

Indices Epoch(DistributedSampler& sampler) {
  sampler.reset();
  return Take(sampler, 3);
}

// How often each sample comes on all ranks of a world.
std::map<size_t, int> Times(int64_t size, int world_size,
                            DistributedSampler::Options options,
                            const SamplerState* state = nullptr) {
  std::map<size_t, int> times;
  for (int rank = 0; rank < world_size; ++rank) {
    DistributedSampler sampler = Make(size, rank, world_size, options);
    if (state != nullptr) {
      EXPECT_THAT(sampler.Restore(*state), IsOk());
    }
    sampler.reset();
    const int64_t pass = sampler.pass_size();
    EXPECT_LE(pass, sampler.max_pass_size());
    const Indices own = Take(sampler, 4);
    EXPECT_EQ(own.size(), pass);
    for (const size_t i : own) ++times[i];
  }
  return times;
}

TEST(DistributedSamplerTest, EachSampleOnceForAwkwardSizes) {
  for (int64_t size = 1; size <= 25; ++size) {
    for (const int world : {1, 2, 3, 4, 7, 30}) {
      SCOPED_TRACE(absl::StrCat(size, " on ", world));
      const auto times = Times(size, world, {.tail = Tail::kUneven});
      EXPECT_EQ(times.size(), size);
      for (const auto& [index, count] : times) EXPECT_EQ(count, 1) << index;
    }
  }
}

TEST(DistributedSamplerTest, PadRepeatsTheFirstAndDropLeavesOutTheLast) {
  for (int64_t size = 1; size <= 25; ++size) {
    for (const int world : {1, 2, 3, 4, 7, 30}) {
      SCOPED_TRACE(absl::StrCat(size, " on ", world));
      int64_t sum = 0;
      const auto padded =
          Times(size, world, {.tail = Tail::kPad, .shuffle = false});
      EXPECT_EQ(padded.size(), size);
      for (const auto& [index, count] : padded) {
        sum += count;
        // Those in front come as often as any, or once more.
        EXPECT_LE(count, padded.at(0)) << index;
        EXPECT_GE(count, padded.at(0) - 1) << index;
      }
      EXPECT_EQ(sum, (size + world - 1) / world * world);
      if (size < world) continue;
      const auto dropped =
          Times(size, world, {.tail = Tail::kDrop, .shuffle = false});
      EXPECT_EQ(dropped.size(), size / world * world);
      EXPECT_EQ(dropped.rbegin()->first, size / world * world - 1);
      for (const auto& [index, count] : dropped) EXPECT_EQ(count, 1) << index;
    }
  }
}

TEST(DistributedSamplerTest, InOrderWithoutShuffling) {
  DistributedSampler sampler = Make(7, 1, 2, {.shuffle = false});
  EXPECT_THAT(Epoch(sampler), ElementsAre(1, 3, 5, 0));
  EXPECT_THAT(Epoch(sampler), ElementsAre(1, 3, 5, 0));
}

TEST(DistributedSamplerTest, ShufflesAnewEachEpochAndAlikeForASeed) {
  DistributedSampler a = Make(100, 0, 2, {.seed = 1});
  DistributedSampler b = Make(100, 0, 2, {.seed = 1});
  DistributedSampler c = Make(100, 0, 2, {.seed = 2});
  const Indices first = Epoch(a);
  const Indices second = Epoch(a);
  EXPECT_NE(first, second);
  EXPECT_EQ(Epoch(b), first);
  EXPECT_NE(Epoch(c), first);
  // Epoch 1 is the same wherever one comes from.
  b.SetEpoch(1);
  EXPECT_EQ(Epoch(b), second);
  b.SetEpoch(0);
  EXPECT_EQ(Epoch(b), first);
}

// As LibTorch's loader calls it.
TEST(DistributedSamplerTest, ResetBeginsTheNextEpochEvenInTheMiddle) {
  DistributedSampler sampler = Make(10, 0, 1);
  EXPECT_EQ(sampler.epoch(), 0);
  sampler.reset();
  EXPECT_EQ(sampler.epoch(), 0);
  Take(sampler, 2, /*batches=*/1);
  sampler.reset();
  EXPECT_EQ(sampler.epoch(), 1);
  EXPECT_EQ(sampler.remaining(), 10);
  EXPECT_EQ(Take(sampler, 3).size(), 10);
}

// Every place in an epoch at which all ranks are in step, and every world size
// after it.
TEST(DistributedSamplerTest, ResumesWithExactlyTheSamplesNotSeen) {
  constexpr int64_t kSize = 23;
  const DistributedSampler::Options options = {.tail = Tail::kUneven,
                                               .seed = 5};
  for (const int world : {1, 2, 3, 5}) {
    for (int batches = 0; batches * 2 * world < kSize; ++batches) {
      std::map<size_t, int> times;
      SamplerState state;
      for (int rank = world - 1; rank >= 0; --rank) {
        DistributedSampler sampler = Make(kSize, rank, world, options);
        sampler.SetEpoch(4);
        sampler.reset();
        for (const size_t i : Take(sampler, 2, batches)) ++times[i];
        state = sampler.state();
      }
      for (const int next_world : {1, 2, 3, 4, 7}) {
        SCOPED_TRACE(
            absl::StrCat(world, " then ", next_world, " after ", batches));
        auto total = times;
        // Another seed and order than the state's, which count.
        for (const auto& [i, count] :
             Times(kSize, next_world,
                   {.tail = Tail::kUneven, .shuffle = false, .seed = 8},
                   &state)) {
          total[i] += count;
        }
        EXPECT_EQ(total.size(), kSize);
        for (const auto& [i, count] : total) EXPECT_EQ(count, 1) << i;
      }
    }
  }
}

TEST(DistributedSamplerTest, ResumesInTheSameOrder) {
  for (const Tail tail : {Tail::kPad, Tail::kDrop, Tail::kUneven}) {
    for (int rank = 0; rank < 3; ++rank) {
      for (int batches = 0; batches < 4; ++batches) {
        SCOPED_TRACE(
            absl::StrCat(TailName(tail), ", rank ", rank, ", after ", batches));
        DistributedSampler sampler =
            Make(23, rank, 3, {.tail = tail, .seed = 5});
        sampler.SetEpoch(2);
        sampler.reset();
        Take(sampler, 2, batches);
        DistributedSampler resumed = Make(23, rank, 3, {.tail = tail});
        ASSERT_THAT(resumed.Restore(sampler.state()), IsOk());
        resumed.reset();
        EXPECT_EQ(resumed.epoch(), sampler.epoch());
        EXPECT_EQ(Take(resumed, 5), Take(sampler, 5));
        EXPECT_EQ(Epoch(resumed), Epoch(sampler));
      }
    }
  }
}

TEST(DistributedSamplerTest, AfterTheLastSampleTheStateIsOfTheNextEpoch) {
  DistributedSampler sampler = Make(6, 0, 2, {.seed = 3});
  sampler.reset();
  Take(sampler, 2, /*batches=*/1);
  EXPECT_EQ(sampler.state(), (SamplerState{.epoch = 0,
                                           .offset = 4,
                                           .num_samples = 6,
                                           .seed = 3,
                                           .shuffle = true}));
  Take(sampler, 2, /*batches=*/1);
  EXPECT_EQ(sampler.state().epoch, 1);
  EXPECT_EQ(sampler.state().offset, 0);
}

TEST(DistributedSamplerTest, TravelsInAnArchive) {
  DistributedSampler sampler = Make(20, 1, 2, {.seed = uint64_t{1} << 63});
  sampler.reset();
  Take(sampler, 3, /*batches=*/2);
  std::stringstream bytes;
  torch::serialize::OutputArchive out;
  sampler.save(out);
  out.save_to(bytes);

  torch::serialize::InputArchive in;
  in.load_from(bytes);
  DistributedSampler resumed = Make(20, 1, 2);
  resumed.load(in);
  resumed.reset();
  EXPECT_EQ(resumed.remaining(), 4);
  EXPECT_EQ(Take(resumed, 3), Take(sampler, 3));

  bytes.clear();
  bytes.seekg(0);
  torch::serialize::InputArchive again;
  again.load_from(bytes);
  DistributedSampler other = Make(21, 1, 2);
  EXPECT_THROW(other.load(again), c10::Error);
}

TEST(DistributedSamplerTest, ADataSetThatGrewBeginsAnew) {
  DistributedSampler sampler = Make(6, 0, 1, {.shuffle = false});
  sampler.reset();
  Take(sampler, 2, 1);
  sampler.reset(8);
  EXPECT_EQ(Take(sampler, 3).size(), 8);
  EXPECT_THROW(sampler.reset(0), c10::Error);
}

TEST(DistributedSamplerTest, WhatCannotBeIsRefusedWithTheNumbers) {
  EXPECT_THAT(DistributedSampler::Create(10, 2, 2, {}),
              StatusIs(kInvalidArgument,
                       AllOf(HasSubstr("rank is 2"), HasSubstr("world of 2"))));
  EXPECT_THAT(DistributedSampler::Create(10, -1, 2, {}),
              StatusIs(kInvalidArgument));
  EXPECT_THAT(DistributedSampler::Create(10, 0, 0, {}),
              StatusIs(kInvalidArgument));
  EXPECT_THAT(DistributedSampler::Create(0, 0, 1, {}),
              StatusIs(kInvalidArgument));
  EXPECT_THAT(DistributedSampler::Create(3, 0, 4, {.tail = Tail::kDrop}),
              StatusIs(kInvalidArgument,
                       AllOf(HasSubstr("3 samples"), HasSubstr("4 ranks"))));
}

TEST(DistributedSamplerTest, AStateOfOtherDataIsRefusedAndNothingChanges) {
  DistributedSampler sampler = Make(10, 0, 2);
  sampler.SetEpoch(3);
  EXPECT_THAT(
      sampler.Restore({.epoch = 1, .offset = 0, .num_samples = 11}),
      StatusIs(kInvalidArgument, AllOf(HasSubstr("11"), HasSubstr("10"))));
  EXPECT_THAT(sampler.Restore({.epoch = 1, .offset = 10, .num_samples = 10}),
              StatusIs(kInvalidArgument, HasSubstr("offset 10")));
  EXPECT_THAT(sampler.Restore({.epoch = -1, .offset = 0, .num_samples = 10}),
              StatusIs(kInvalidArgument));
  EXPECT_EQ(sampler.epoch(), 3);
}

TEST(SamplerStateTest, ComesBackFromItsText) {
  const SamplerState state = {.epoch = 3,
                              .offset = int64_t{1} << 40,
                              .num_samples = int64_t{1} << 41,
                              .seed = UINT64_MAX,
                              .shuffle = false};
  EXPECT_THAT(DecodeSamplerState(EncodeSamplerState(state)),
              IsOkAndHolds(state));
}

TEST(SamplerStateTest, OtherTextsAreRefused) {
  const std::string good = EncodeSamplerState({.num_samples = 5});
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"\"epoch\":0", "\"epoch\":-1"},
           {"\"epoch\":0", "\"epoch\":0.5"},
           {"\"offset\":0", "\"offset\":\"0\""},
           {"\"seed\":0", "\"seed\":-1"},
           {"\"kind\":\"samples\"", "\"kind\":\"records\""},
           {"\"shuffle\":true", "\"shuffled\":true"},
           {"}", ""}}) {
    std::string bad = good;
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << good;
    bad.replace(at, from.size(), to);
    EXPECT_THAT(DecodeSamplerState(bad), StatusIs(kInvalidArgument)) << bad;
  }
}

}  // namespace
}  // namespace miniray::train
