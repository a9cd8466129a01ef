#include "train/data/join.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a process group does for ranks that are threads here.
class MaxOfRanks {
 public:
  explicit MaxOfRanks(int ranks) : ranks_(ranks) {}

  int64_t operator()(int64_t number) {
    const absl::MutexLock lock(&mu_);
    max_ = std::max(max_, number);
    ++arrived_;
    mu_.Await(absl::Condition(
        +[](MaxOfRanks* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mu_) {
          return self->arrived_ == self->ranks_;
        },
        this));
    return max_;
  }

 private:
  const int ranks_;
  absl::Mutex mu_;
  int arrived_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t max_ ABSL_GUARDED_BY(mu_) = 0;
};

struct FakeLoader {
  std::vector<int> batches;
  int64_t steps() const { return static_cast<int64_t>(batches.size()); }
  auto begin() { return batches.begin(); }
  auto end() { return batches.end(); }
};

TEST(JoinTest, EachRankDoesAsManyStepsAsTheLongest) {
  const std::vector<int64_t> own = {3, 2, 0, 3};
  MaxOfRanks max(static_cast<int>(own.size()));
  std::vector<std::vector<int>> done(own.size());  // Batch, or -1: shadowed.
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < own.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      FakeLoader loader;
      for (int i = 0; i < own[rank]; ++i) loader.batches.push_back(i);
      EXPECT_THAT(ForEachJoined(
                      loader, [&](int64_t n) { return max(n); },
                      [&](int batch) { done[rank].push_back(batch); },
                      [&] { done[rank].push_back(-1); }),
                  IsOk());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(done, ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1, -1),
                                ElementsAre(-1, -1, -1), ElementsAre(0, 1, 2)));
}

TEST(JoinTest, AFailedAllReduceComesBackBeforeAnyStep) {
  FakeLoader loader{{1, 2}};
  int calls = 0;
  EXPECT_THAT(
      ForEachJoined(
          loader,
          [](int64_t) -> absl::StatusOr<int64_t> {
            return absl::UnavailableError("rank 3 is gone");
          },
          [&](int) { ++calls; }, [&] { ++calls; }),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 3 is gone")));
  EXPECT_EQ(calls, 0);
}

TEST(JoinTest, WhatCannotBeIsRefused) {
  const AllReduceMax same = [](int64_t n) { return n; };
  EXPECT_THAT(PlanJoin(-1, same),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
  EXPECT_THAT(PlanJoin(1, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument));
  // Of another number of steps than this rank's, so not of all ranks.
  EXPECT_THAT(PlanJoin(5, [](int64_t) { return 4; }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("5")));
}

TEST(JoinTest, WhatAStepThrowsPassesThrough) {
  FakeLoader loader{{1}};
  EXPECT_THROW((void)ForEachJoined(
                   loader, [](int64_t n) { return n; },
                   [](int) { throw std::runtime_error("loss is nan"); }, [] {}),
               std::runtime_error);
}

}  // namespace
}  // namespace miniray::train
