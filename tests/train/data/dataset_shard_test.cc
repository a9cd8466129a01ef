#include "train/data/dataset_shard.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/train/data/number_files.h"
#include "train/data/dataset.h"
#include "train/data/join.h"

namespace miniray::train {
namespace {

using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DatasetShardTest : public testing::Test {
 protected:
  void SetUp() override {
    auto data = files_.Make(&log_);
    ASSERT_THAT(data, IsOk());
    data_ = *std::move(data);
    ASSERT_EQ(data_.size(), 29);
  }

  DatasetShard Shard(int rank, int world_size) {
    auto shard = data_.Shard(rank, world_size);
    EXPECT_THAT(shard, IsOk());
    return *std::move(shard);
  }

  NumberFiles files_{{10, 1, 0, 7, 3, 8}};
  ReaderLog log_;
  Dataset data_;
};

TEST_F(DatasetShardTest, EachRecordOnceAnEpochAndStepsAreAsTold) {
  for (const int world : {1, 2, 3, 4, 7, 40}) {
    for (const int64_t buffer : {0, 1, 5, 100}) {
      for (const int64_t batch_size : {1, 4, 50}) {
        for (const bool drop_last : {false, true}) {
          const IterBatchesOptions options = {.batch_size = batch_size,
                                              .shuffle_buffer = buffer,
                                              .prefetch = world % 3,
                                              .drop_last = drop_last,
                                              .tail = Tail::kUneven};
          SCOPED_TRACE(absl::StrCat(world, " ranks, buffer ", buffer, ", by ",
                                    batch_size));
          std::map<int64_t, int> times;
          int64_t seen = 0;
          int64_t most = 0;
          int64_t told = 0;
          for (int rank = 0; rank < world; ++rank) {
            DatasetShard shard = Shard(rank, world);
            BatchStream stream = shard.IterBatches(options);
            const int64_t steps = stream.steps();
            told = stream.max_steps();
            const Batches batches = Loop(std::move(stream));
            EXPECT_EQ(batches.size(), steps);
            most = std::max(most, steps);
            for (size_t i = 0; i < batches.size(); ++i) {
              if (drop_last || i + 1 < batches.size()) {
                EXPECT_EQ(batches[i].size(), batch_size);
              }
              for (const int64_t number : batches[i]) ++times[number];
              seen += static_cast<int64_t>(batches[i].size());
            }
          }
          EXPECT_EQ(told, most);
          EXPECT_EQ(times.size(), seen);  // None twice.
          EXPECT_TRUE(drop_last || seen == 29) << seen;
        }
      }
    }
  }
}

TEST_F(DatasetShardTest, PadAndDropGiveEachRankEquallyManyBatches) {
  for (const int world : {2, 3, 4, 7, 28, 40}) {
    for (const int64_t buffer : {0, 6}) {
      SCOPED_TRACE(absl::StrCat(world, " ranks, buffer ", buffer));
      std::map<int64_t, int> padded, dropped;
      for (int rank = 0; rank < world; ++rank) {
        IterBatchesOptions options = {.batch_size = 2,
                                      .shuffle_buffer = buffer};
        int64_t own = 0;
        for (const auto& batch :
             Loop(Shard(rank, world).IterBatches(options))) {
          own += static_cast<int64_t>(batch.size());
          for (const int64_t number : batch) ++padded[number];
        }
        EXPECT_EQ(own, (29 + world - 1) / world);
        options.tail = Tail::kDrop;
        own = 0;
        for (const auto& batch :
             Loop(Shard(rank, world).IterBatches(options))) {
          own += static_cast<int64_t>(batch.size());
          for (const int64_t number : batch) ++dropped[number];
        }
        EXPECT_EQ(own, 29 / world);
      }
      EXPECT_EQ(padded.size(), 29);
      EXPECT_EQ(dropped.size(), 29 / world * world);
      for (const auto& [number, times] : dropped) EXPECT_EQ(times, 1);
    }
  }
}

TEST_F(DatasetShardTest, InTheOrderOfTheFilesWithoutShuffling) {
  EXPECT_THAT(Loop(Shard(1, 3).IterBatches({.batch_size = 4})),
              ElementsAre(ElementsAre(10, 11, 12, 13),
                          ElementsAre(14, 15, 16, 17), ElementsAre(18, 19)));
  // No rank reads what is another's.
  EXPECT_EQ(log_.reads, 10);
  EXPECT_EQ(log_.skipped, 0);
}

TEST_F(DatasetShardTest, WhatIsRepeatedAreTheFirstRecords) {
  EXPECT_THAT(Loop(Shard(2, 3).IterBatches({.batch_size = 8})),
              ElementsAre(ElementsAre(20, 21, 22, 23, 24, 25, 26, 27),
                          ElementsAre(28, 0)));
  EXPECT_THAT(Loop(Shard(39, 40).IterBatches()), ElementsAre(ElementsAre(10)));
}

TEST_F(DatasetShardTest, ShufflesAnewEachEpochAndAlikeForASeed) {
  const IterBatchesOptions options = {
      .batch_size = 4, .shuffle_buffer = 8, .seed = 1};
  DatasetShard shard = Shard(0, 2);
  const Batches first = Loop(shard.IterBatches(options));
  EXPECT_EQ(shard.epoch(), 1);
  const Batches second = Loop(shard.IterBatches(options));
  EXPECT_NE(first, second);

  DatasetShard other = Shard(0, 2);
  other.SetEpoch(1);
  EXPECT_EQ(Loop(other.IterBatches(options)), second);
  other.SetEpoch(0);
  EXPECT_EQ(Loop(other.IterBatches(options)), first);

  IterBatchesOptions reseeded = options;
  reseeded.seed = 2;
  EXPECT_NE(Loop(Shard(0, 2).IterBatches(reseeded)), first);
}

// Otherwise a rank would see the same records in every epoch.
TEST_F(DatasetShardTest, TheOrderOfBlocksChangesWithTheEpoch) {
  DatasetShard shard = Shard(0, 2);
  std::vector<std::vector<int64_t>> epochs;
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::vector<int64_t> numbers;
    for (const auto& batch :
         Loop(shard.IterBatches({.batch_size = 5, .shuffle_buffer = 1}))) {
      numbers.insert(numbers.end(), batch.begin(), batch.end());
    }
    std::sort(numbers.begin(), numbers.end());
    epochs.push_back(numbers);
  }
  EXPECT_FALSE(epochs[0] == epochs[1] && epochs[1] == epochs[2] &&
               epochs[2] == epochs[3]);
}

TEST_F(DatasetShardTest, PrefetchingDoesNotChangeTheOrder) {
  IterBatchesOptions options = {
      .batch_size = 3, .shuffle_buffer = 5, .prefetch = 0};
  const Batches expected = Loop(Shard(1, 2).IterBatches(options));
  for (const int prefetch : {1, 2, 10}) {
    options.prefetch = prefetch;
    EXPECT_EQ(Loop(Shard(1, 2).IterBatches(options)), expected);
  }
}

// After every batch of an epoch, with a thread that has read ahead.
TEST_F(DatasetShardTest, ResumesAfterTheBatchInHand) {
  for (const Tail tail : {Tail::kPad, Tail::kDrop, Tail::kUneven}) {
    for (const bool drop_last : {false, true}) {
      for (const int64_t buffer : {0, 4, 100}) {
        for (int rank = 0; rank < 2; ++rank) {
          const IterBatchesOptions options = {.batch_size = 3,
                                              .shuffle_buffer = buffer,
                                              .prefetch = 2,
                                              .drop_last = drop_last,
                                              .tail = tail,
                                              .seed = 4};
          DatasetShard whole = Shard(rank, 2);
          const Batches first = Loop(whole.IterBatches(options));
          const Batches second = Loop(whole.IterBatches(options));
          for (size_t stop = 0; stop < first.size(); ++stop) {
            SCOPED_TRACE(absl::StrCat(TailName(tail), ", buffer ", buffer,
                                      ", rank ", rank, ", after ", stop));
            DatasetShard shard = Shard(rank, 2);
            std::string state;
            size_t i = 0;
            for ([[maybe_unused]] const Batch& batch :
                 shard.IterBatches(options)) {
              if (i++ != stop) continue;
              state = shard.State();
              break;
            }
            DatasetShard resumed = Shard(rank, 2);
            ASSERT_THAT(resumed.Restore(state), IsOk());
            if (stop + 1 < first.size()) {
              EXPECT_EQ(resumed.epoch(), 0);
              BatchStream stream = resumed.IterBatches(options);
              EXPECT_EQ(stream.steps(), first.size() - stop - 1);
              EXPECT_EQ(Loop(std::move(stream)),
                        Batches(first.begin() + static_cast<int>(stop) + 1,
                                first.end()));
            }
            EXPECT_EQ(resumed.epoch(), 1);
            EXPECT_EQ(Loop(resumed.IterBatches(options)), second);
          }
        }
      }
    }
  }
}

// Where there is one block, its order says nothing.
TEST(DatasetShardOfOneBlockTest, TheBufferDrawsAnewEachEpoch) {
  const NumberFiles files({100});
  ReaderLog log;
  auto data = files.Make(&log);
  ASSERT_THAT(data, IsOk());
  auto shard = data->Shard(0, 1);
  ASSERT_THAT(shard, IsOk());
  const IterBatchesOptions options = {.batch_size = 100, .shuffle_buffer = 50};
  const Batches first = Loop(shard->IterBatches(options));
  EXPECT_NE(Loop(shard->IterBatches(options)), first);
}

// Resuming must not cost a second reading of what was seen.
TEST_F(DatasetShardTest, ResumingReadsOnlyWhatIsLeft) {
  const IterBatchesOptions options = {
      .batch_size = 5, .shuffle_buffer = 4, .prefetch = 0};
  DatasetShard shard = Shard(0, 1);
  Loop(shard.IterBatches(options), /*stop_after=*/3);
  DatasetShard resumed = Shard(0, 1);
  {
    BatchStream stream = shard.IterBatches(options);
    for (int i = 0; i < 3; ++i) ASSERT_THAT(stream.Next(), IsOk());
    ASSERT_THAT(resumed.Restore(shard.State()), IsOk());
  }
  log_.reads = 0;
  log_.opens = 0;
  Loop(resumed.IterBatches(options));
  EXPECT_EQ(log_.reads, 29 - 15);
  // Front to back, though the buffer holds records in any order.
  EXPECT_LE(log_.opens, 5);
}

// Runs ranks in step for `steps` batches, counts what they take, and returns
// rank 0's state.
std::string RunInStep(const Dataset& data, int world,
                      const IterBatchesOptions& options, int64_t steps,
                      const std::string& from, std::map<int64_t, int>* times) {
  std::string state;
  for (int rank = world - 1; rank >= 0; --rank) {
    auto shard = data.Shard(rank, world);
    if (!from.empty()) {
      EXPECT_THAT(shard->Restore(from), IsOk()) << from;
    }
    BatchStream stream = shard->IterBatches(options);
    for (int64_t i = 0; i < steps; ++i) {
      auto batch = stream.Next();
      EXPECT_THAT(batch, IsOk());
      if (!batch.ok() || !batch->has_value()) break;
      for (const int64_t number : NumbersOf(**batch)) ++(*times)[number];
    }
    state = shard->State();
  }
  return state;
}

// A world that changes twice within an epoch, at every place.
TEST_F(DatasetShardTest, AnotherWorldGoesOnWithTheRecordsNotTaken) {
  for (const int64_t buffer : {0, 3, 100}) {
    const IterBatchesOptions options = {.batch_size = 2,
                                        .shuffle_buffer = buffer,
                                        .tail = Tail::kUneven,
                                        .seed = 6};
    for (const int world : {1, 3, 4}) {
      for (int64_t steps = 1; steps * 2 * world < 29; ++steps) {
        std::map<int64_t, int> first;
        const std::string state =
            RunInStep(data_, world, options, steps, "", &first);
        EXPECT_EQ(first.size(), steps * 2 * world);
        for (const int second_world : {1, 2, 4, 5}) {
          for (const int64_t second_steps : {0, 1}) {
            SCOPED_TRACE(absl::StrCat("buffer ", buffer, ", ", steps,
                                      " steps on ", world, ", ", second_steps,
                                      " on ", second_world));
            std::map<int64_t, int> times = first;
            const std::string second = RunInStep(data_, second_world, options,
                                                 second_steps, state, &times);
            const bool over = times.size() == 29;
            if (!over) RunInStep(data_, 2, options, 1000, second, &times);
            EXPECT_EQ(times.size(), 29);
            for (const auto& [number, count] : times) {
              EXPECT_EQ(count, 1) << number;
            }
          }
        }
      }
    }
  }
}

TEST_F(DatasetShardTest, OtherOptionsInTheMiddleOfAnEpochLoseNothing) {
  IterBatchesOptions options = {
      .batch_size = 3, .shuffle_buffer = 5, .tail = Tail::kUneven, .seed = 1};
  std::map<int64_t, int> times;
  const std::string state = RunInStep(data_, 2, options, 2, "", &times);
  options = {.batch_size = 4, .tail = Tail::kUneven, .seed = 2};
  RunInStep(data_, 2, options, 1000, state, &times);
  EXPECT_EQ(times.size(), 29);
  for (const auto& [number, count] : times) EXPECT_EQ(count, 1) << number;
}

// What the first world would have dropped, the second has.
TEST_F(DatasetShardTest, WhatWasDroppedIsDealtWhenTheWorldChanges) {
  const IterBatchesOptions options = {.batch_size = 2, .tail = Tail::kDrop};
  std::map<int64_t, int> times;
  const std::string state = RunInStep(data_, 4, options, 2, "", &times);
  EXPECT_EQ(times.size(), 16);
  RunInStep(data_, 1, options, 1000, state, &times);
  EXPECT_EQ(times.size(), 29);
}

TEST_F(DatasetShardTest, LeavingALoopEndsItsEpoch) {
  const IterBatchesOptions options = {.batch_size = 4, .shuffle_buffer = 9};
  DatasetShard shard = Shard(0, 1);
  Loop(shard.IterBatches(options), /*stop_after=*/2);
  EXPECT_EQ(shard.epoch(), 1);
  DatasetShard resumed = Shard(0, 1);
  ASSERT_THAT(resumed.Restore(shard.State()), IsOk());
  EXPECT_EQ(Loop(resumed.IterBatches(options)),
            Loop(shard.IterBatches(options)));
  EXPECT_EQ(shard.epoch(), 2);
}

TEST_F(DatasetShardTest, UnevenRanksJoin) {
  std::vector<int> own;
  for (int rank = 0; rank < 4; ++rank) {
    DatasetShard shard = Shard(rank, 4);
    BatchStream stream =
        shard.IterBatches({.batch_size = 1, .tail = Tail::kUneven});
    own.push_back(0);
    int shadowed = 0;
    ASSERT_THAT(ForEachJoined(
                    stream, [&](int64_t) { return stream.max_steps(); },
                    [&](Batch&) { ++own.back(); }, [&] { ++shadowed; }),
                IsOk());
    EXPECT_EQ(own.back() + shadowed, 8);
  }
  EXPECT_THAT(own, ElementsAre(8, 7, 7, 7));
}

TEST_F(DatasetShardTest, AStreamWithinAStreamIsRefused) {
  DatasetShard shard = Shard(0, 1);
  BatchStream stream = shard.IterBatches({.batch_size = 10});
  ASSERT_THAT(stream.Next(), IsOk());
  {
    BatchStream inner = shard.IterBatches({.batch_size = 10});
    EXPECT_THAT(inner.Next(), StatusIs(kFailedPrecondition));
    EXPECT_THROW(inner.begin(), DatasetError);
  }
  EXPECT_THROW(shard.SetEpoch(4), std::logic_error);
  EXPECT_THAT(shard.Restore(shard.State()), StatusIs(kFailedPrecondition));
  // The outer one has not noticed.
  EXPECT_EQ(Loop(std::move(stream)).size(), 2);
  EXPECT_EQ(shard.epoch(), 1);
}

TEST_F(DatasetShardTest, AfterItsEndAStreamStaysAtItsEnd) {
  DatasetShard shard = Shard(0, 1);
  BatchStream stream = shard.IterBatches({.batch_size = 29});
  ASSERT_THAT(stream.Next(), IsOk());
  for (int i = 0; i < 2; ++i) {
    auto none = stream.Next();
    ASSERT_THAT(none, IsOk());
    EXPECT_FALSE(none->has_value());
    EXPECT_EQ(shard.epoch(), 1);
  }
  EXPECT_EQ(Loop(shard.IterBatches({.batch_size = 29})).size(), 1);
  EXPECT_EQ(shard.epoch(), 2);
}

TEST_F(DatasetShardTest, WhatCannotBeIsRefusedWithTheNumber) {
  EXPECT_THAT(data_.Shard(3, 3),
              StatusIs(kInvalidArgument, HasSubstr("no rank 3")));
  EXPECT_THAT(data_.Shard(0, 0), StatusIs(kInvalidArgument));
  DatasetShard shard = Shard(0, 1);
  EXPECT_THAT(shard.IterBatches({.device = "nowhere"}).Next(),
              StatusIs(kInvalidArgument, HasSubstr("device is 'nowhere'")));
  shard.set_device("cuda:99");
  EXPECT_THAT(shard.IterBatches().Next(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("device is 'cuda:99'")));
  shard.set_device("");
  EXPECT_THAT(shard.IterBatches({.batch_size = 0}).Next(),
              StatusIs(kInvalidArgument, HasSubstr("batch_size is 0")));
  EXPECT_THAT(shard.IterBatches({.shuffle_buffer = -1}).Next(),
              StatusIs(kInvalidArgument, HasSubstr("shuffle_buffer is -1")));
  EXPECT_THAT(shard.IterBatches({.prefetch = -1}).Next(),
              StatusIs(kInvalidArgument, HasSubstr("prefetch is -1")));
  EXPECT_THROW(shard.SetEpoch(-1), std::invalid_argument);
  EXPECT_EQ(shard.epoch(), 0);
  // What a stream is asked for counts before what the shard was told.
  shard.set_device("cuda:99");
  EXPECT_THAT(shard.IterBatches({.device = "cpu"}).Next(), IsOk());
}

TEST_F(DatasetShardTest, AStateOfOtherDataIsRefused) {
  const std::string good = Shard(0, 1).State();
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"\"num_records\":29", "\"num_records\":30"},
           {"\"num_blocks\":5", "\"num_blocks\":6"},
           {"\"kind\":\"records\"", "\"kind\":\"samples\""},
           {"\"epoch\":0", "\"epoch\":-1"},
           {"\"deals\":[]", "\"deals\":[{}]"},
           {"\"deals\":[]", "\"deals\":7"},
           {"\"deals\":[]",
            "\"deals\":[{\"world_size\":0,\"tail\":\"pad\",\"seed\":0,"
            "\"shuffle_buffer\":0,\"taken\":0}]"},
           {"}", ""}}) {
    std::string bad = good;
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << good;
    bad.replace(at, from.size(), to);
    EXPECT_THAT(Shard(0, 1).Restore(bad), StatusIs(kInvalidArgument)) << bad;
  }
  EXPECT_THAT(Shard(0, 1).Restore(good), IsOk());
}

}  // namespace
}  // namespace miniray::train
