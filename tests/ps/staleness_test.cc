#include "ps/staleness.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

WorkerClocks Waiting(int64_t num_workers, int64_t max_staleness) {
  return WorkerClocks(
      {.num_workers = num_workers, .max_staleness = max_staleness});
}

void TakeMany(WorkerClocks& clocks, int worker, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    clocks.Take({worker, clocks.Of(worker).last_sequence + 1});
  }
}

TEST(WorkerClocksTest, TheFastestIsHeldUpByThoseTooFarBehind) {
  WorkerClocks clocks = Waiting(3, 2);
  TakeMany(clocks, 0, 2);
  EXPECT_THAT(clocks.HeldUpBy(0), IsEmpty());
  TakeMany(clocks, 0, 1);
  EXPECT_THAT(clocks.HeldUpBy(0), ElementsAre(1, 2));
  EXPECT_THAT(clocks.HeldUpBy(1), IsEmpty());
  TakeMany(clocks, 2, 1);
  EXPECT_THAT(clocks.HeldUpBy(0), ElementsAre(1));
  TakeMany(clocks, 1, 1);
  EXPECT_THAT(clocks.HeldUpBy(0), IsEmpty());
}

TEST(WorkerClocksTest, WithoutABoundOrWithDampingNobodyWaits) {
  WorkerClocks unbounded = Waiting(2, kUnboundedStaleness);
  TakeMany(unbounded, 0, 1000);
  EXPECT_THAT(unbounded.HeldUpBy(0), IsEmpty());
  WorkerClocks damping(
      {.num_workers = 2, .max_staleness = 0, .policy = StalenessPolicy::kDamp});
  TakeMany(damping, 0, 1000);
  EXPECT_THAT(damping.HeldUpBy(0), IsEmpty());
}

TEST(WorkerClocksTest, WhoLeavesIsWaitedForNoMore) {
  WorkerClocks clocks = Waiting(3, 1);
  TakeMany(clocks, 0, 2);
  clocks.Leave(1);
  EXPECT_THAT(clocks.HeldUpBy(0), ElementsAre(2));
  EXPECT_THAT(clocks.Active(), ElementsAre(0, 2));
}

TEST(WorkerClocksTest, WhoComesBackBeginsAtTheSlowestsClock) {
  WorkerClocks clocks = Waiting(3, 1);
  clocks.Leave(2);
  TakeMany(clocks, 0, 5);
  TakeMany(clocks, 1, 4);
  clocks.Take({2, 1});
  EXPECT_EQ(clocks.Of(2).clock, 5);  // It joined at 4.
  EXPECT_THAT(clocks.HeldUpBy(0), IsEmpty());
  // Its own numbers go on.
  EXPECT_TRUE(clocks.Taken({2, 1}));
  EXPECT_FALSE(clocks.Taken({2, 2}));
}

TEST(WorkerClocksTest, AWorkerOfNoNumberJoins) {
  WorkerClocks clocks = Waiting(0, kUnboundedStaleness);
  EXPECT_THAT(clocks.Active(), IsEmpty());
  clocks.Take({7, 3});
  EXPECT_THAT(clocks.Active(), ElementsAre(7));
  EXPECT_EQ(clocks.Of(7).clock, 1);
  EXPECT_EQ(clocks.Of(7).last_sequence, 3);
}

TEST(WorkerClocksTest, KnowsWhatItHasTaken) {
  WorkerClocks clocks = Waiting(2, kUnboundedStaleness);
  EXPECT_FALSE(clocks.Taken({1, 1}));
  clocks.Take({1, 1});
  EXPECT_TRUE(clocks.Taken({1, 1}));
  EXPECT_FALSE(clocks.Taken({0, 1}));
  clocks.Take({1, 5});  // Numbers may be left out.
  EXPECT_TRUE(clocks.Taken({1, 4}));
}

TEST(WorkerClocksTest, GoesOnFromItsState) {
  WorkerClocks clocks = Waiting(3, 1);
  TakeMany(clocks, 0, 4);
  TakeMany(clocks, 1, 2);
  clocks.Leave(2);
  WorkerClocks restored = Waiting(3, 1);
  restored.Restore(clocks.State());
  EXPECT_THAT(restored.HeldUpBy(0), ElementsAre(1));
  EXPECT_THAT(restored.Active(), ElementsAre(0, 1));
  EXPECT_TRUE(restored.Taken({0, 4}));
}

TEST(WorkerClocksTest, DampingIsAHinge) {
  const WorkerClocks clocks(
      {.max_staleness = 2, .policy = StalenessPolicy::kDamp});
  EXPECT_EQ(clocks.LearningRateScale(0), 1);
  EXPECT_EQ(clocks.LearningRateScale(2), 1);
  EXPECT_EQ(clocks.LearningRateScale(3), 0.5);
  EXPECT_EQ(clocks.LearningRateScale(5), 0.25);
  EXPECT_EQ(Waiting(1, 2).LearningRateScale(5), 1);
  EXPECT_EQ(WorkerClocks(WorkerClocks::Options()).LearningRateScale(5), 1);
}

TEST(CountStalenessTest, TheLastOneCountsAllOlderOnes) {
  std::vector<int64_t> histogram;
  CountStaleness(0, &histogram);
  CountStaleness(2, &histogram);
  CountStaleness(2, &histogram);
  EXPECT_THAT(histogram, ElementsAre(1, 0, 2));
  CountStaleness(kMaxCountedStaleness, &histogram);
  CountStaleness(1'000'000'000, &histogram);
  EXPECT_EQ(histogram.size(), kMaxCountedStaleness + 1);
  EXPECT_EQ(histogram.back(), 2);
}

}  // namespace
}  // namespace miniray::ps
