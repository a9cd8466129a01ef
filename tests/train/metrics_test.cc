#include "train/metrics.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::train {
namespace {

using ::testing::HasSubstr;

Metrics Average(const std::vector<Metrics>& per_worker) {
  absl::StatusOr<Metrics> result = AverageMetrics(per_worker);
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

TEST(AverageMetricsTest, IsTheMeanOverWorkers) {
  EXPECT_EQ(Average({{{"loss", 1}, {"accuracy", 0.5}},
                     {{"loss", 4}, {"accuracy", 1}}}),
            (Metrics{{"loss", 2.5}, {"accuracy", 0.75}}));
}

TEST(AverageMetricsTest, WeighsBySamplesIfEveryWorkerReportsThem) {
  // (100 * 1 + 300 * 5) / 400
  EXPECT_EQ(Average({{{"loss", 1}, {"samples", 100}},
                     {{"loss", 5}, {"samples", 300}}}),
            (Metrics{{"loss", 4}, {"samples", 400}}));
}

TEST(AverageMetricsTest, DoesNotWeighIfOneWorkerReportsNoSamples) {
  EXPECT_EQ(Average({{{"loss", 1}, {"samples", 100}}, {{"loss", 5}}}),
            (Metrics{{"loss", 3}, {"samples", 100}}));
}

TEST(AverageMetricsTest, AMetricCountsForTheWorkersThatReportIt) {
  EXPECT_EQ(Average({{{"loss", 1}, {"samples", 1}},
                     {{"loss", 3}, {"samples", 3}, {"extra", 7}}}),
            (Metrics{{"loss", 2.5}, {"samples", 4}, {"extra", 7}}));
}

TEST(AverageMetricsTest, SkippedStepsAreASum) {
  EXPECT_EQ(Average({{{"loss", 1}, {"samples", 1}, {"skipped_steps", 2}},
                     {{"loss", 3}, {"samples", 2}},
                     {{"loss", 3}, {"samples", 1}, {"skipped_steps", 5}}}),
            (Metrics{{"loss", 2.5}, {"samples", 4}, {"skipped_steps", 7}}));
}

TEST(AverageMetricsTest, AWorkerWithoutSamplesDoesNotCount) {
  EXPECT_EQ(Average({{{"loss", std::nan("")}, {"samples", 0}},
                     {{"loss", 3}, {"samples", 2}}}),
            (Metrics{{"loss", 3}, {"samples", 2}}));
}

TEST(AverageMetricsTest, WithoutAnySamplesItIsThePlainMean) {
  EXPECT_EQ(
      Average({{{"loss", 1}, {"samples", 0}}, {{"loss", 3}, {"samples", 0}}}),
      (Metrics{{"loss", 2}, {"samples", 0}}));
}

TEST(AverageMetricsTest, NaNShows) {
  EXPECT_TRUE(std::isnan(
      Average({{{"loss", std::nan("")}}, {{"loss", 1}}}).at("loss")));
}

TEST(AverageMetricsTest, ImpossibleSamplesNameTheWorker) {
  for (double bad : {-1.0, std::nan(""), double{INFINITY}}) {
    const auto result = AverageMetrics({{{"samples", 1}}, {{"samples", bad}}});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("worker 1 reports"));
  }
}

TEST(AverageMetricsTest, NothingIsTheMeanOfNothing) {
  EXPECT_EQ(Average({}), Metrics());
  EXPECT_EQ(Average({{}, {}}), Metrics());
}

TEST(RangeOfMetricsTest, IsTheLeastAndTheGreatestOverWorkers) {
  const MetricsRange range =
      RangeOfMetrics({{{"loss", 2}, {"samples", 10}},
                      {{"loss", -1}, {"samples", 30}},
                      {{"loss", 1}, {"samples", 20}, {"extra", 7}}});
  EXPECT_EQ(range.min, (Metrics{{"loss", -1}, {"samples", 10}, {"extra", 7}}));
  EXPECT_EQ(range.max, (Metrics{{"loss", 2}, {"samples", 30}, {"extra", 7}}));
}

TEST(RangeOfMetricsTest, AWorkerWithoutSamplesCountsInSamplesOnly) {
  const MetricsRange range =
      RangeOfMetrics({{{"loss", std::nan("")}, {"samples", 0}},
                      {{"loss", 3}, {"samples", 2}}});
  EXPECT_EQ(range.min, (Metrics{{"loss", 3}, {"samples", 0}}));
  EXPECT_EQ(range.max, (Metrics{{"loss", 3}, {"samples", 2}}));
}

TEST(RangeOfMetricsTest, WhereNobodyHasSamplesAllCount) {
  EXPECT_EQ(RangeOfMetrics(
                {{{"loss", 4}, {"samples", 0}}, {{"loss", 3}, {"samples", 0}}})
                .min,
            (Metrics{{"loss", 3}, {"samples", 0}}));
  // "extra" is of a worker without samples alone, as in the mean.
  const std::vector<Metrics> mixed = {{{"extra", 4}, {"samples", 0}},
                                      {{"loss", 3}, {"samples", 2}}};
  EXPECT_EQ(RangeOfMetrics(mixed).max.at("extra"), Average(mixed).at("extra"));
}

TEST(RangeOfMetricsTest, NaNShowsWhereverItStands) {
  for (const std::vector<double>& values :
       {std::vector<double>{NAN, 1, 2}, {1, NAN, 2}, {1, 2, NAN}}) {
    std::vector<Metrics> per_worker;
    for (double value : values) per_worker.push_back({{"loss", value}});
    const MetricsRange range = RangeOfMetrics(per_worker);
    EXPECT_TRUE(std::isnan(range.min.at("loss")));
    EXPECT_TRUE(std::isnan(range.max.at("loss")));
  }
}

TEST(RangeOfMetricsTest, OfNothingIsEmpty) {
  EXPECT_TRUE(RangeOfMetrics({}).min.empty());
  EXPECT_TRUE(RangeOfMetrics({{}, {}}).max.empty());
}

TEST(MetricsTextTest, IsShort) {
  EXPECT_EQ(MetricsText({{"loss", 1.0 / 3}, {"acc", 1}}), "acc=1 loss=0.33333");
}

}  // namespace
}  // namespace miniray::train
