#include "train/data/data_loader.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/train/data/threads.h"
#include "torch/data/datasets/base.h"
#include "torch/data/transforms/lambda.h"
#include "torch/data/transforms/stack.h"
#include "train/data/join.h"

namespace miniray::train {
namespace {

using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sample i is data [i, -i] and target i.
class Numbers : public torch::data::datasets::Dataset<Numbers> {
 public:
  explicit Numbers(size_t size) : size_(size) {}

  torch::data::Example<> get(size_t index) override {
    if (index == bad_) throw std::runtime_error("sample 5 is unreadable");
    if (reads_ != nullptr) ++*reads_;
    const auto i = static_cast<float>(index);
    return {torch::tensor({i, -i}), torch::tensor(static_cast<int64_t>(index))};
  }
  torch::optional<size_t> size() const override { return size_; }

  Numbers& FailAt(size_t index) {
    bad_ = index;
    return *this;
  }
  Numbers& CountReads(std::shared_ptr<std::atomic<int>> reads) {
    reads_ = std::move(reads);
    return *this;
  }

 private:
  size_t size_;
  size_t bad_ = SIZE_MAX;
  std::shared_ptr<std::atomic<int>> reads_;
};

using Batches = std::vector<std::vector<int64_t>>;

template <class Batch>
std::vector<int64_t> Targets(const Batch& batch) {
  const torch::Tensor targets = batch.target.contiguous();
  return {targets.template data_ptr<int64_t>(),
          targets.template data_ptr<int64_t>() + targets.numel()};
}

template <class Loader>
Batches Loop(Loader& loader, int stop_after = 1 << 30) {
  Batches batches;
  for (auto& batch : loader) {
    batches.push_back(Targets(batch));
    if (--stop_after == 0) break;
  }
  return batches;
}

auto Make(int64_t size, int rank, int world_size,
          const DataLoaderOptions& options) {
  auto loader = PrepareDataLoader(Numbers(static_cast<size_t>(size)), rank,
                                  world_size, options);
  EXPECT_THAT(loader, IsOk());
  return *std::move(loader);
}

TEST(DataLoaderTest, StacksExamplesInTheDataSetsOrder) {
  auto loader = Make(5, 1, 2, {.batch_size = 2, .shuffle = false});
  auto it = loader.begin();
  ASSERT_FALSE(it == loader.end());
  EXPECT_TRUE(
      torch::equal(it->data, torch::tensor({{1.0f, -1.0f}, {3.0f, -3.0f}})));
  EXPECT_THAT(Targets(*it), ElementsAre(1, 3));
  ++it;
  EXPECT_THAT(Targets(*it), ElementsAre(0));
  ++it;
  EXPECT_TRUE(it == loader.end());
}

TEST(DataLoaderTest, TakesTransformsAndCollationsOfTheUsersOwn) {
  auto twice = torch::data::transforms::Lambda<torch::data::Example<>>(
      [](torch::data::Example<> example) {
        example.data = example.data * 2;
        return example;
      });
  auto stacked = PrepareDataLoader(
      Numbers(4).map(twice).map(torch::data::transforms::Stack<>()), 0, 1,
      {.batch_size = 4, .shuffle = false});
  ASSERT_THAT(stacked, IsOk());
  for (auto& batch : *stacked) {
    EXPECT_TRUE(torch::equal(batch.data.select(1, 0),
                             torch::tensor({0.0f, 2.0f, 4.0f, 6.0f})));
  }
  auto sum =
      torch::data::transforms::BatchLambda<std::vector<torch::data::Example<>>,
                                           double>(
          [](std::vector<torch::data::Example<>> examples) {
            double total = 0;
            for (const auto& example : examples) {
              total += example.target.item<double>();
            }
            return total;
          });
  auto summed = PrepareDataLoader(Numbers(5).map(sum), 0, 1,
                                  {.batch_size = 3, .shuffle = false});
  ASSERT_THAT(summed, IsOk());
  std::vector<double> sums;
  for (const double total : *summed) sums.push_back(total);
  EXPECT_THAT(sums, ElementsAre(3, 7));
}

TEST(DataLoaderTest, EachSampleOnceAnEpochAndStepsAreAsTold) {
  for (const int64_t size : {1, 7, 16, 23}) {
    for (const int world : {1, 2, 3, 5}) {
      for (const int64_t batch_size : {1, 3, 8, 50}) {
        for (const bool drop_last : {false, true}) {
          SCOPED_TRACE(absl::StrCat(size, " on ", world, " by ", batch_size));
          std::map<int64_t, int> times;
          int64_t most = 0;
          int64_t told = 0;
          int64_t seen = 0;
          for (int rank = 0; rank < world; ++rank) {
            auto loader = Make(size, rank, world,
                               {.batch_size = batch_size,
                                .tail = Tail::kUneven,
                                .drop_last = drop_last});
            const int64_t steps = loader.steps();
            const Batches batches = Loop(loader);
            EXPECT_EQ(batches.size(), steps);
            most = std::max(most, steps);
            told = loader.max_steps();
            for (size_t i = 0; i < batches.size(); ++i) {
              if (drop_last || i + 1 < batches.size()) {
                EXPECT_EQ(batches[i].size(), batch_size);
              }
              for (const int64_t sample : batches[i]) ++times[sample];
              seen += static_cast<int64_t>(batches[i].size());
            }
          }
          EXPECT_EQ(told, most);
          EXPECT_EQ(times.size(), seen);  // None twice.
          EXPECT_TRUE(drop_last || seen == size) << seen;
        }
      }
    }
  }
}

TEST(DataLoaderTest, RanksHaveEquallyManyBatchesUnlessUneven) {
  for (const Tail tail : {Tail::kPad, Tail::kDrop}) {
    for (int64_t size = 5; size < 25; ++size) {
      std::vector<size_t> batches;
      for (int rank = 0; rank < 5; ++rank) {
        auto loader =
            Make(size, rank, 5, {.batch_size = 2, .tail = tail, .seed = 2});
        batches.push_back(Loop(loader).size());
        EXPECT_EQ(batches.back(), batches.front()) << size;
        EXPECT_EQ(loader.steps(), loader.max_steps());
      }
    }
  }
}

TEST(DataLoaderTest, EachLoopIsTheNextEpochAlsoAfterABreak) {
  for (const int workers : {0, 2}) {
    const DataLoaderOptions options = {
        .batch_size = 4, .workers = workers, .seed = 1};
    auto loader = Make(20, 0, 1, options);
    EXPECT_EQ(loader.epoch(), 0);
    const Batches first = Loop(loader);
    EXPECT_EQ(loader.epoch(), 1);
    Loop(loader, /*stop_after=*/2);
    EXPECT_EQ(loader.epoch(), 2);
    const Batches third = Loop(loader);
    EXPECT_EQ(third.size(), 5);
    EXPECT_NE(third, first);

    auto other = Make(20, 0, 1, options);
    other.SetEpoch(2);
    EXPECT_EQ(Loop(other), third);
    other.SetEpoch(0);
    EXPECT_EQ(Loop(other), first);
  }
}

TEST(DataLoaderTest, WorkersAndPrefetchingDoNotChangeTheOrder) {
  auto plain = Make(50, 1, 2, {.batch_size = 3, .seed = 1});
  const Batches expected = Loop(plain);
  for (const int workers : {1, 3}) {
    for (const int prefetch : {1, 4}) {
      auto loader = Make(50, 1, 2,
                         {.batch_size = 3,
                          .workers = workers,
                          .prefetch = prefetch,
                          .seed = 1});
      EXPECT_EQ(Loop(loader), expected);
    }
  }
}

// In every batch of an epoch, with threads that have read ahead.
TEST(DataLoaderTest, ResumesAfterTheBatchInHand) {
  for (const int workers : {0, 2}) {
    for (const bool drop_last : {false, true}) {
      const DataLoaderOptions options = {
          .batch_size = 4, .workers = workers, .drop_last = drop_last};
      auto whole = Make(45, 1, 2, options);
      const Batches first = Loop(whole);
      const Batches second = Loop(whole);
      for (size_t stop = 0; stop < first.size(); ++stop) {
        SCOPED_TRACE(absl::StrCat(workers, " workers, after ", stop));
        auto loader = Make(45, 1, 2, options);
        std::string state;
        size_t i = 0;
        for ([[maybe_unused]] auto& batch : loader) {
          if (i++ != stop) continue;
          state = loader.State();
          break;
        }
        auto resumed = Make(45, 1, 2, options);
        ASSERT_THAT(resumed.Restore(state), IsOk());
        if (stop + 1 < first.size()) {
          EXPECT_EQ(resumed.epoch(), 0);
          EXPECT_EQ(resumed.steps(), first.size() - stop - 1);
          EXPECT_EQ(
              Loop(resumed),
              Batches(first.begin() + static_cast<int>(stop) + 1, first.end()));
        }
        EXPECT_EQ(resumed.epoch(), 1);
        EXPECT_EQ(Loop(resumed), second);
      }
    }
  }
}

TEST(DataLoaderTest, ABreakAndAResumeAfterItGoOnAlike) {
  auto loader = Make(40, 0, 1, {.batch_size = 4});
  Loop(loader, /*stop_after=*/3);
  auto resumed = Make(40, 0, 1, {.batch_size = 4});
  ASSERT_THAT(resumed.Restore(loader.State()), IsOk());
  EXPECT_EQ(Loop(resumed), Loop(loader));
}

TEST(DataLoaderTest, AnotherWorldSizeGoesOnWithTheSamplesNotSeen) {
  for (const int new_world : {1, 2, 4, 5}) {
    std::map<int64_t, int> times;
    std::string state;
    for (int rank = 0; rank < 3; ++rank) {
      auto loader = Make(
          41, rank, 3, {.batch_size = 4, .workers = 1, .tail = Tail::kUneven});
      int batches = 0;
      for (auto& batch : loader) {
        for (const int64_t i : Targets(batch)) ++times[i];
        if (++batches < 2) continue;
        state = loader.State();
        break;
      }
    }
    EXPECT_EQ(times.size(), 24);
    for (int rank = 0; rank < new_world; ++rank) {
      auto loader =
          Make(41, rank, new_world, {.batch_size = 3, .tail = Tail::kUneven});
      ASSERT_THAT(loader.Restore(state), IsOk());
      for (const auto& batch : Loop(loader)) {
        for (const int64_t i : batch) ++times[i];
      }
    }
    EXPECT_EQ(times.size(), 41);
    for (const auto& [i, count] : times) EXPECT_EQ(count, 1) << i;
  }
}

TEST(DataLoaderTest, UnevenRanksJoin) {
  std::vector<int> steps;
  for (int rank = 0; rank < 3; ++rank) {
    auto loader = Make(7, rank, 3, {.batch_size = 1, .tail = Tail::kUneven});
    int own = 0;
    int shadowed = 0;
    ASSERT_THAT(ForEachJoined(
                    loader, [&](int64_t) { return loader.max_steps(); },
                    [&](auto&) { ++own; }, [&] { ++shadowed; }),
                IsOk());
    EXPECT_EQ(own + shadowed, 3);
    steps.push_back(own);
  }
  EXPECT_THAT(steps, ElementsAre(3, 2, 2));
}

TEST(DataLoaderTest, ReadsNoFurtherAheadThanTold) {
  auto reads = std::make_shared<std::atomic<int>>(0);
  auto loader =
      PrepareDataLoader(Numbers(1000).CountReads(reads), 0, 1,
                        {.batch_size = 5, .workers = 1, .prefetch = 3});
  ASSERT_THAT(loader, IsOk());
  int batches = 0;
  for ([[maybe_unused]] auto& batch : *loader) {
    ++batches;
    EXPECT_LE(*reads, (batches + 3) * 5);
  }
  EXPECT_EQ(batches, 200);
}

TEST(DataLoaderTest, ErrorsOfTheDataSetAreThrownAndTheLoaderLives) {
  for (const int workers : {0, 2}) {
    auto loader = PrepareDataLoader(
        Numbers(20).FailAt(5), 0, 1,
        {.batch_size = 2, .workers = workers, .shuffle = false});
    ASSERT_THAT(loader, IsOk());
    int batches = 0;
    try {
      for ([[maybe_unused]] auto& batch : *loader) ++batches;
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::exception& e) {
      EXPECT_THAT(e.what(), HasSubstr("sample 5 is unreadable"));
    }
    EXPECT_EQ(batches, 2);
    EXPECT_EQ(loader->epoch(), 1);
    EXPECT_EQ(Loop(*loader, /*stop_after=*/2).size(), 2);
  }
}

TEST(DataLoaderTest, LeavesNoThreadsWhereverALoopEnds) {
  const int before = CountThreads();
  for (const int stop_after : {1, 2, 1 << 30}) {
    auto loader =
        Make(100, 0, 1, {.batch_size = 3, .workers = 3, .prefetch = 4});
    Loop(loader, stop_after);
    {
      auto it = loader.begin();  // Ends without a look at it.
    }
    EXPECT_GT(CountThreads(), before);
  }
  EXPECT_TRUE(ThreadsComeDownTo(before)) << CountThreads();
}

TEST(DataLoaderTest, ALoopWithinALoopIsRefused) {
  auto loader = Make(10, 0, 1, {.batch_size = 2});
  int batches = 0;
  for ([[maybe_unused]] auto& batch : loader) {
    ++batches;
    EXPECT_THROW(loader.begin(), std::logic_error);
    EXPECT_THROW(loader.SetEpoch(7), std::logic_error);
    EXPECT_THAT(loader.Restore(loader.State()), StatusIs(kFailedPrecondition));
  }
  EXPECT_EQ(batches, 5);
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_THROW(loader.SetEpoch(-1), std::invalid_argument);
  EXPECT_EQ(loader.epoch(), 1);
}

class Unsized : public torch::data::datasets::Dataset<Unsized> {
 public:
  torch::data::Example<> get(size_t index) override { return {}; }
  torch::optional<size_t> size() const override { return torch::nullopt; }
};

TEST(DataLoaderTest, WhatCannotBeIsRefusedWithTheNumber) {
  const auto make = [](const DataLoaderOptions& options) {
    return PrepareDataLoader(Numbers(10), 0, 1, options).status();
  };
  EXPECT_THAT(make({.device = "nowhere"}),
              StatusIs(kInvalidArgument, HasSubstr("device is 'nowhere'")));
  EXPECT_THAT(make({.device = "cpu"}), IsOk());
  EXPECT_THAT(make({.batch_size = 0}),
              StatusIs(kInvalidArgument, HasSubstr("batch_size is 0")));
  EXPECT_THAT(make({.workers = -1}),
              StatusIs(kInvalidArgument, HasSubstr("workers is -1")));
  // LibTorch would wait for ever.
  EXPECT_THAT(make({.workers = 1, .prefetch = 0}),
              StatusIs(kInvalidArgument, HasSubstr("prefetch is 0")));
  EXPECT_THAT(PrepareDataLoader(Numbers(0), 0, 1),
              StatusIs(kInvalidArgument, HasSubstr("0 samples")));
  EXPECT_THAT(PrepareDataLoader(Numbers(5), 3, 3),
              StatusIs(kInvalidArgument, HasSubstr("rank is 3")));
  auto loader = Make(10, 0, 1, {});
  EXPECT_THAT(loader.Restore("{}"), StatusIs(kInvalidArgument));
  EXPECT_THAT(loader.Restore(Make(11, 0, 1, {}).State()),
              StatusIs(kInvalidArgument,
                       AllOf(HasSubstr("11 samples"), HasSubstr("10"))));
}

TEST(DataLoaderTest, ADataSetWithoutASizeIsRefused) {
  EXPECT_THAT(PrepareDataLoader(Unsized(), 0, 1),
              StatusIs(kInvalidArgument, HasSubstr("size")));
}

}  // namespace
}  // namespace miniray::train
