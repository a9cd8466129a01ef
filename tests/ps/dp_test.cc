// Differential privacy: what is clipped is worked out by hand; the noise is
// held against the normal distribution.

#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/strategy_testutil.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;

StrategyOptions NoNoise(double clip_norm) {
  return {{"clip_norm", clip_norm}, {"noise_multiplier", 0}};
}

TEST(DpTest, ClipsTheUpdateOfTheWholeModel) {
  auto dp = Create("dp", NoNoise(2.5));
  dp->Reset({{"a", Floats({1, 1})}, {"b", Floats({0})}});
  // Updates (3, 0, 4), norm 5, becomes half of it; (0, -1, 0), norm 1, stays.
  const auto result = AggregateModel(
      *dp, Contributions({{{"a", Floats({4, 1})}, {"b", Floats({4})}},
                          {{"a", Floats({1, 0})}, {"b", Floats({0})}}}));
  // (1, 1, 0) + ((1.5, 0, 2) + (0, -1, 0)) / 2
  EXPECT_THAT(Values(result[0].second),
              ElementsAre(DoubleNear(1.75, 1e-6), DoubleNear(0.5, 1e-6)));
  EXPECT_THAT(Values(result[1].second), ElementsAre(DoubleNear(1, 1e-6)));
}

TEST(DpTest, UpdatesAreFromTheLastResult) {
  auto dp = Create("dp", NoNoise(1));
  dp->Reset({{"w", Floats({0})}});
  EXPECT_THAT(AggregateValues(*dp, Workers({{100}})), ElementsAre(1));
  EXPECT_THAT(AggregateValues(*dp, Workers({{100}})), ElementsAre(2));
  dp->Reset({{"w", Floats({50})}});
  EXPECT_THAT(AggregateValues(*dp, Workers({{100}})), ElementsAre(51));
}

TEST(DpTest, AnUpdateThatIsNotFiniteIsNone) {
  auto dp = Create("dp", NoNoise(1));
  dp->Reset({{"w", Floats({10, 10})}});
  // Half of the worker's that moved by 0.5.
  EXPECT_THAT(AggregateValues(*dp, Workers({{NAN, 10}, {10.5, 10}})),
              ElementsAre(10.25, 10));
  EXPECT_THAT(AggregateValues(*dp, Workers({{INFINITY, 10}})),
              ElementsAre(10.25, 10));
}

TEST(DpTest, NeedsAStart) {
  const auto dp = Create("dp");
  EXPECT_TRUE(dp->UsesStart());
  const absl::Status status = dp->Aggregate(Workers({{1}})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("StartFromWorkers"));
}

TEST(DpTest, CountersAreTheMaximumAndVariancesNotNegative) {
  auto dp = Create("dp", {{"noise_multiplier", 1000}, {"seed", 3}});
  const auto model = [](int64_t n) {
    return NamedTensors{{"bn.running_var", Floats(std::vector<float>(100, 1))},
                        {"bn.num_batches_tracked", Ints({n})}};
  };
  dp->Reset(model(0));
  const auto result = AggregateModel(*dp, Contributions({model(4), model(9)}));
  EXPECT_THAT(Values(result[0].second), Each(Ge(0)));
  EXPECT_THAT(Values(result[1].second), ElementsAre(9));
}

std::vector<double> NoiseOf(const StrategyOptions& options, int workers,
                            int rounds = 1) {
  const std::vector<float> zeros(200000);
  auto dp = Create("dp", options);
  dp->Reset({{"w", Floats(zeros)}});
  std::vector<double> noise;
  for (int round = 0; round < rounds; ++round) {
    dp->Reset({{"w", Floats(zeros)}});
    noise = AggregateValues(*dp, Workers(std::vector<std::vector<float>>(
                                     static_cast<size_t>(workers), zeros)));
  }
  return noise;
}

// Standard deviation noise_multiplier * clip_norm / n = 0.5 * 4 / 2.
TEST(DpTest, TheNoiseIsNormal) {
  std::vector<double> noise =
      NoiseOf({{"seed", 1}, {"noise_multiplier", 0.5}, {"clip_norm", 4}}, 2);
  double sum = 0, squares = 0;
  for (const double x : noise) {
    sum += x;
    squares += x * x;
  }
  const auto n = static_cast<double>(noise.size());
  // Five standard errors: 1 / sqrt(n) and sqrt(2 / n).
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  // Kolmogorov and Smirnov's distance from the normal distribution; 1.95 /
  // sqrt(n) would be exceeded once in a thousand seeds.
  std::sort(noise.begin(), noise.end());
  double distance = 0;
  for (size_t i = 0; i < noise.size(); ++i) {
    const double normal = std::erfc(-noise[i] / std::sqrt(2.0)) / 2;
    distance =
        std::max({distance, std::fabs(normal - static_cast<double>(i) / n),
                  std::fabs(normal - static_cast<double>(i + 1) / n)});
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(n));
}

double Correlation(const std::vector<double>& a, const std::vector<double>& b,
                   size_t shift = 0) {
  double sum = 0;
  for (size_t i = 0; i + shift < a.size(); ++i) sum += a[i + shift] * b[i];
  return sum / static_cast<double>(a.size());
}

TEST(DpTest, NoNoiseComesTwice) {
  const auto first = NoiseOf({{"seed", 1}}, 1);
  EXPECT_EQ(first, NoiseOf({{"seed", 1}}, 1)) << "but from the same seed";
  const double limit = 5 / std::sqrt(static_cast<double>(first.size()));
  EXPECT_NEAR(Correlation(first, first, 1), 0, limit);
  EXPECT_NEAR(Correlation(first, NoiseOf({{"seed", 2}}, 1)), 0, limit);
  EXPECT_NEAR(Correlation(first, NoiseOf({{"seed", 1}}, 1, 2)), 0, limit)
      << "in the next synchronisation, Reset or not";
  EXPECT_NEAR(Correlation(NoiseOf({}, 1), NoiseOf({}, 1)), 0, limit)
      << "without a seed it is the operating system's";

  // Two tensors, and two parts of one.
  auto dp = Create("dp", {{"seed", 1}});
  const at::Tensor zeros = Floats(std::vector<float>(1000));
  dp->Reset({{"v", zeros}, {"w", zeros}});
  const auto result =
      AggregateModel(*dp, Contributions({{{"v", zeros}, {"w", zeros}}}));
  EXPECT_NEAR(Correlation(Values(result[0].second), Values(result[1].second)),
              0, 5 / std::sqrt(1000.0));
}

TEST(DpTest, TheInnerStrategyGetsThePrivateMean) {
  StrategyOptions options = NoNoise(1);
  options.Set("inner", "momentum");
  options.Set("inner.momentum", 0.5);
  auto dp = Create("dp", options);
  dp->Reset({{"w", Floats({0})}});
  // The private mean is 1: half of the way from 0.
  EXPECT_THAT(AggregateValues(*dp, Workers({{100}, {50}})), ElementsAre(0.5));
  // From 0.5 by at most 1 to 1.5, half of that way.
  EXPECT_THAT(AggregateValues(*dp, Workers({{100}, {50}})), ElementsAre(1));
}

TEST(DpTest, OptionsAreChecked) {
  EXPECT_THAT(CreateError("dp", {{"clip_norm", 0}}),
              HasSubstr("option 'clip_norm' must be above 0, got 0"));
  EXPECT_THAT(CreateError("dp", {{"noise_multiplier", -1}}),
              HasSubstr("of at least 0, got -1"));
  EXPECT_THAT(
      CreateError("dp", {{"inner", "avrage"}}),
      AllOf(HasSubstr("its inner one"), HasSubstr("no synchronisation")));
  EXPECT_THAT(
      CreateError("dp", {{"inner", "momentum"}, {"inner.momentum", 1.5}}),
      HasSubstr("option 'momentum' must be in [0, 1), got 1.5"));
  EXPECT_THAT(CreateError("dp", {{"inner.momentum", 0.5}}),
              HasSubstr("unknown option 'momentum'"));
  EXPECT_THAT(CreateError("dp", {{"momentum", 0.5}}),
              HasSubstr("inner.NAME: options of the inner strategy"));
  // What compares workers has only one.
  EXPECT_THAT(
      CreateError("dp", {{"inner", "krum"}}),
      AllOf(HasSubstr("its inner one"), HasSubstr("there is one left")));
}

TEST(DpTest, AForeignStateIsRefused) {
  EXPECT_EQ(Create("dp")->RestoreState({}, {{"w", Floats({1})}}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace miniray::ps
