// median, trimmed_mean, krum, multi_krum and bulyan against values worked out
// by hand, in numbers that binary fractions hold exactly.

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/strategies/krum_scores.h"
#include "tests/ps/strategy_testutil.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MedianTest, IsTheOneInTheMiddleOrTheMeanOfTwo) {
  auto median = Create("median");
  EXPECT_THAT(AggregateValues(*median, Workers({{1, 5}, {100, 7}, {2, 6}})),
              ElementsAre(2, 6));
  EXPECT_THAT(
      AggregateValues(*median, Workers({{1, 5}, {100, 7}, {2, 6}, {4, 0}})),
      ElementsAre(3, 5.5));
  EXPECT_THAT(AggregateValues(*median, Workers({{1, 5}, {2, 8}})),
              ElementsAre(1.5, 6.5));
  EXPECT_THAT(AggregateValues(*median, Workers({{1, 5}})), ElementsAre(1, 5));
}

TEST(MedianTest, BuffersAreMediansTooAndCountersTheMaximum) {
  const auto result = AggregateModel(
      *Create("median"),
      Contributions({{{"bn.running_var", Floats({1})}, {"n", Ints({10})}},
                     {{"bn.running_var", Floats({9})}, {"n", Ints({12})}},
                     {{"bn.running_var", Floats({2})}, {"n", Ints({11})}}}));
  EXPECT_THAT(Values(result[0].second), ElementsAre(2));
  EXPECT_THAT(Values(result[1].second), ElementsAre(12));
}

TEST(MedianTest, AMinorityOfBrokenWorkersIsOutvoted) {
  const float inf = INFINITY;
  EXPECT_THAT(AggregateValues(*Create("median"), Workers({{NAN, -inf, 4},
                                                          {1, 1, inf},
                                                          {2, 3, 3},
                                                          {3, 2, 2},
                                                          {inf, NAN, -400}})),
              ElementsAre(3, 2, 3));
}

TEST(TrimmedMeanTest, CutsTheExtremes) {
  const auto five = Workers({{1, -50}, {2, 1}, {3, 2}, {7, 3}, {1000, 4}});
  // Of 5 workers, 0.2 is one a side: (2 + 3 + 7) / 3, (1 + 2 + 3) / 3.
  EXPECT_THAT(AggregateValues(*Create("trimmed_mean"), five),
              ElementsAre(4, 2));
  // 0.4 is two a side: the median.
  EXPECT_THAT(AggregateValues(*Create("trimmed_mean", {{"beta", 0.4}}), five),
              ElementsAre(3, 2));
  // None: (1 + 2 + 3 + 7 + 1000) / 5 = 202.6, (-50 + 10) / 5.
  EXPECT_THAT(AggregateValues(*Create("trimmed_mean", {{"beta", 0}}), five),
              ElementsAre(DoubleNear(202.6, 1e-4), -8));
}

TEST(TrimmedMeanTest, RoundsTheCutUpAndLeavesOne) {
  // 0.2 * 4 = 0.8: one a side.
  EXPECT_THAT(
      AggregateValues(*Create("trimmed_mean"), Workers({{1}, {NAN}, {2}, {5}})),
      ElementsAre(3.5));
  // 0.49 * 3 = 1.47 would be two a side of three.
  EXPECT_THAT(AggregateValues(*Create("trimmed_mean", {{"beta", 0.49}}),
                              Workers({{1}, {9}, {2}})),
              ElementsAre(2));
  EXPECT_THAT(AggregateValues(*Create("trimmed_mean"), Workers({{1}, {2}})),
              ElementsAre(1.5));
  // 0.07 * 100 is a little more than 7 in doubles: 7 a side all the same.
  std::vector<std::vector<float>> values;
  for (int i = 0; i < 100; ++i) values.push_back({i == 0 ? 1000.f : 2.f * i});
  // Sorted: 2, 4, ..., 198, 1000. Left are 16, ..., 186: mean 101.
  EXPECT_THAT(AggregateValues(*Create("trimmed_mean", {{"beta", 0.07}}),
                              Workers(values)),
              ElementsAre(101));
}

TEST(TrimmedMeanTest, BetaIsBelowOneHalf) {
  for (const double bad : {0.5, -0.1, 1.0}) {
    EXPECT_THAT(CreateError("trimmed_mean", {{"beta", bad}}),
                HasSubstr("option 'beta' must be in [0, 0.5), got"));
  }
}

TEST(PairDistancesTest, AddsUpAllFloatingPointTensors) {
  const auto contributions = Contributions(
      {{{"a", Floats({0, 0})}, {"b", Doubles({1})}, {"n", Ints({5})}},
       {{"a", Floats({3, 4})}, {"b", Doubles({1})}, {"n", Ints({9})}},
       {{"a", Floats({0, 1})}, {"b", Doubles({3})}, {"n", Ints({7})}}});
  // |(3, 4, 0)|^2, |(0, 1, 2)|^2, |(3, 3, 2)|^2
  EXPECT_THAT(ValuesOf(PairDistances(contributions)), ElementsAre(25, 5, 22));
}

TEST(PairDistancesTest, OfLargeTensorsToo) {
  std::vector<float> zeros(700001), twos(700001, 2);
  const auto contributions =
      Contributions({{{"w", Floats(zeros)}}, {{"w", Floats(twos)}}});
  EXPECT_THAT(ValuesOf(PairDistances(contributions)),
              ElementsAre(4.0 * 700001));
  auto half = Contributions({{{"w", Floats(zeros).to(at::kHalf)}},
                             {{"w", Floats(twos).to(at::kHalf)}}});
  EXPECT_THAT(ValuesOf(PairDistances(half)), ElementsAre(4.0 * 700001));
}

// Squared distances of 1, 2, 2.5, 4 and 100; the two closest (5 - 1 - 2) of
//   1: 1, 2.25 -> 3.25        2: 0.25, 1 -> 1.25    2.5: 0.25, 2.25 -> 2.5
//   4: 2.25, 4 -> 6.25      100: far
std::vector<Contribution> FiveWorkers() {
  return Workers({{4}, {100}, {2}, {1}, {2.5}});
}

TEST(KrumTest, ChoosesTheWorkerThatMostAreCloseTo) {
  EXPECT_THAT(AggregateValues(*Create("krum"), FiveWorkers()), ElementsAre(2));
}

TEST(KrumTest, TakesAllTensorsOfOneWorker) {
  // Of three workers with none broken the closest one counts. 0 and 1: 1 +
  // 1600; 0 and 2: 25 + 1; 1 and 2: 16 + 1521. So 0 and 2 have 26, 0 is first.
  const auto result = AggregateModel(
      *Create("krum", {{"num_malicious", 0}}),
      Contributions(
          {{{"a", Floats({0})}, {"b", Floats({10})}, {"n", Ints({3})}},
           {{"a", Floats({1})}, {"b", Floats({50})}, {"n", Ints({99})}},
           {{"a", Floats({5})}, {"b", Floats({11})}, {"n", Ints({4})}}}));
  EXPECT_THAT(Values(result[0].second), ElementsAre(0));
  EXPECT_THAT(Values(result[1].second), ElementsAre(10));
  EXPECT_THAT(Values(result[2].second), ElementsAre(3));
}

TEST(MultiKrumTest, AveragesTheBest) {
  // All but one: (4 + 2 + 1 + 2.5) / 4.
  EXPECT_THAT(AggregateValues(*Create("multi_krum"), FiveWorkers()),
              ElementsAre(2.375));
  // (2 + 2.5) / 2
  EXPECT_THAT(AggregateValues(*Create("multi_krum", {{"num_selected", 2}}),
                              FiveWorkers()),
              ElementsAre(2.25));
  EXPECT_THAT(AggregateValues(*Create("multi_krum", {{"num_selected", 1}}),
                              FiveWorkers()),
              ElementsAre(2));
}

// Of (1, 8), (2, 7.5), (3.5, 6), (4, 4), (5.25, 3), (7, 2) and one far off,
// Krum chooses, one after the other, the third, fourth, second, fifth and
// first. Sorted, with the three closest to the median in brackets:
//   1 [2 3.5 4] 5.25      3 [4 6 7.5] 8   (4 and 8 are equally far)
// Worked out by a few lines of Python that follow the paper's definition.
TEST(BulyanTest, AveragesAroundTheMedianOfThoseWhoAgree) {
  EXPECT_THAT(
      AggregateValues(*Create("bulyan"), Workers({{1, 8},
                                                  {2, 7.5},
                                                  {3.5, 6},
                                                  {4, 4},
                                                  {5.25, 3},
                                                  {7, 2},
                                                  {1000, -1000}})),
      ElementsAre(DoubleNear(9.5 / 3, 1e-6), DoubleNear(17.5 / 3, 1e-6)));
}

TEST(BulyanTest, WithNobodyBrokenItIsTheMean) {
  EXPECT_THAT(AggregateValues(*Create("bulyan", {{"num_malicious", 0}}),
                              Workers({{1, 2}, {2, 4}, {6, 9}})),
              ElementsAre(3, 5));
}

// Every robust strategy, with one worker of eleven that sends what a broken or
// a malicious one might.
class GarbageTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GarbageTest, OneWorkerCannotMoveTheResultAway) {
  constexpr int kWorkers = 11;
  for (const float garbage :
       {100.f, -1e30f, 3e38f, float{INFINITY}, -float{INFINITY}, float{NAN}}) {
    for (const int liar : {0, 5, kWorkers - 1}) {
      std::vector<std::vector<float>> values;
      for (int worker = 0; worker < kWorkers; ++worker) {
        std::vector<float> of_one;
        for (int i = 0; i < 1000; ++i) {
          // Around 1, by 0.1 at most.
          const float honest = 1 + 0.1f * std::sin(i * 7 + worker);
          of_one.push_back(worker == liar ? honest * garbage : honest);
        }
        values.push_back(std::move(of_one));
      }
      EXPECT_THAT(AggregateValues(*Create(GetParam()), Workers(values)),
                  Each(DoubleNear(1, 0.11)))
          << garbage << " from worker " << liar;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Robust, GarbageTest,
                         ::testing::Values("median", "trimmed_mean", "krum",
                                           "multi_krum", "bulyan"),
                         [](const auto& info) { return info.param; });

std::string WorkersError(absl::string_view name, const StrategyOptions& options,
                         int64_t num_workers) {
  const auto strategy = Create(name, options);
  const absl::Status status = strategy->CheckWorkers(num_workers);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  // The strategy itself does not go on without them either.
  std::vector<std::vector<float>> values(static_cast<size_t>(num_workers), {1});
  EXPECT_EQ(strategy->Aggregate(Workers(values)).status(), status);
  return std::string(status.message());
}

TEST(RobustStrategiesTest, NeedAMajorityOfHonestWorkers) {
  EXPECT_EQ(WorkersError("krum", {}, 5), "");
  EXPECT_EQ(WorkersError("krum", {}, 4),
            "strategy 'krum' with num_malicious=1 needs at least 2 * "
            "num_malicious + 3 workers, and there are 4; so many allow "
            "num_malicious up to 0");
  EXPECT_EQ(WorkersError("krum", {{"num_malicious", 0}}, 2),
            "strategy 'krum' with num_malicious=0 needs at least 2 * "
            "num_malicious + 3 workers, and there are 2");
  EXPECT_EQ(WorkersError("multi_krum", {{"num_malicious", 3}}, 9), "");
  EXPECT_THAT(WorkersError("multi_krum", {{"num_malicious", 3}}, 8),
              HasSubstr("up to 2"));
  EXPECT_THAT(WorkersError("multi_krum", {{"num_selected", 5}}, 5),
              AllOf(HasSubstr("num_selected=5"), HasSubstr("there are 5")));
  EXPECT_EQ(WorkersError("bulyan", {{"num_malicious", 2}}, 11), "");
  EXPECT_THAT(WorkersError("bulyan", {{"num_malicious", 2}}, 10),
              AllOf(HasSubstr("4 * num_malicious + 3"), HasSubstr("up to 1")));
  EXPECT_EQ(WorkersError("median", {}, 1), "");
  EXPECT_EQ(WorkersError("trimmed_mean", {}, 1), "");
  EXPECT_THAT(CreateError("krum", {{"num_malicious", -1}}),
              HasSubstr("of at least 0, got -1"));
}

}  // namespace
}  // namespace miniray::ps
