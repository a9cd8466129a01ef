#include "runtime/metrics/process_metrics.h"

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/metrics/told.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(MetricHistogramTest, CountsUpToEachBoundAndBeyondAll) {
  MetricHistogram histogram;
  for (const int64_t micros : {-5, 0, 10, 11, 30, 300'000'000, 300'000'001}) {
    histogram.RecordMicros(micros);
  }
  histogram.Record(absl::Milliseconds(2));
  std::array<uint64_t, MetricHistogram::kBuckets> expected = {};
  expected[0] = 3;   // -5, 0 and 10, the bound itself.
  expected[1] = 2;   // 11, 30.
  expected[5] = 1;   // 2 ms: 1 ms to 3 ms.
  expected[15] = 1;  // 300 s.
  expected[16] = 1;
  EXPECT_EQ(histogram.counts(), expected);
  EXPECT_EQ(histogram.count(), 8);
  // 10 + 11 + 30 + 2000 + 300000000 + 300000001 us.
  EXPECT_DOUBLE_EQ(histogram.sum_seconds(), 600.002052);
}

TEST(ProcessMetricsTest, OnlyWhatChangedIsTold) {
  ProcessMetrics metrics;
  MetricCounter& calls = metrics.Counter("calls_total", "Calls.",
                                         {{"class", "A"}, {"method", "Add"}});
  MetricGauge& waiting = metrics.Gauge("waiting", "Waiting.");
  MetricHistogram& seconds = metrics.Histogram("run_seconds", "Time.");
  EXPECT_THAT(Told(metrics.TakeChanges()), IsEmpty());
  calls.Add();
  calls.Add(2);
  waiting.Set(5);
  seconds.RecordMicros(20);
  const v1::MetricReport report = metrics.TakeChanges();
  EXPECT_THAT(Told(report),
              ElementsAre(Pair("calls_total class=A method=Add", 3),
                          Pair("run_seconds", 1), Pair("waiting", 5)));
  ASSERT_EQ(report.families_size(), 3);  // By name.
  EXPECT_EQ(report.families(0).kind(), v1::METRIC_KIND_COUNTER);
  EXPECT_EQ(report.families(0).help(), "Calls.");
  EXPECT_EQ(report.families(1).kind(), v1::METRIC_KIND_HISTOGRAM);
  EXPECT_EQ(report.families(1).series(0).counts_size(),
            MetricHistogram::kBuckets);
  EXPECT_EQ(report.families(1).series(0).counts(1), 1);
  EXPECT_DOUBLE_EQ(report.families(1).series(0).sum_seconds(), 2e-5);
  EXPECT_EQ(report.families(2).kind(), v1::METRIC_KIND_GAUGE);

  EXPECT_THAT(Told(metrics.TakeChanges()), IsEmpty());
  waiting.Set(0);  // A change like any other.
  EXPECT_THAT(Told(metrics.TakeChanges()), ElementsAre(Pair("waiting", 0)));
}

TEST(ProcessMetricsTest, WhatDidNotArriveIsToldAgainEvenWhereItIsNone) {
  ProcessMetrics metrics;
  metrics.Counter("never_total", "Never counted.");
  MetricCounter& calls = metrics.Counter("calls_total", "Calls.");
  MetricGauge& waiting = metrics.Gauge("waiting", "Waiting.");
  calls.Add(7);
  waiting.Set(1);
  metrics.TakeChanges();
  waiting.Set(0);
  metrics.TakeChanges();
  metrics.TellAgain();
  EXPECT_THAT(Told(metrics.TakeChanges()),
              ElementsAre(Pair("calls_total", 7), Pair("waiting", 0)));
  EXPECT_THAT(Told(metrics.TakeChanges()), IsEmpty());
}

TEST(ProcessMetricsTest, ASeriesIsFoundAgain) {
  ProcessMetrics metrics;
  MetricCounter& one = metrics.Counter("c_total", "C.", {{"l", "1"}});
  EXPECT_EQ(&metrics.Counter("c_total", "C.", {{"l", "1"}}), &one);
  EXPECT_NE(&metrics.Counter("c_total", "C.", {{"l", "2"}}), &one);
}

TEST(ProcessMetricsTest, TooManySeriesAreOne) {
  ProcessMetrics metrics;
  constexpr int kExtra = 10;
  for (size_t i = 0; i < ProcessMetrics::kMaxSeries + kExtra; ++i) {
    metrics.Counter("c_total", "C.", {{"l", absl::StrCat("value", i)}}).Add();
  }
  // One that was there before still counts for itself.
  metrics.Counter("c_total", "C.", {{"l", "value0"}}).Add();
  const std::map<std::string, double> told = Told(metrics.TakeChanges());
  EXPECT_EQ(told.size(), ProcessMetrics::kMaxSeries + 1);
  EXPECT_EQ(told.at("c_total l=value0"), 2);
  EXPECT_EQ(told.at("c_total l=value127"), 1);
  EXPECT_EQ(told.at("c_total l=(other)"), kExtra);
}

TEST(ProcessMetricsTest, TooManyMetricsAndTwoKindsOfOneAreToldToNobody) {
  ProcessMetrics metrics;
  for (size_t i = 0; i < ProcessMetrics::kMaxMetrics + 5; ++i) {
    metrics.Counter(absl::StrCat("c", i, "_total"), "C.").Add();
  }
  metrics.Gauge("c0_total", "No gauge.").Set(9);
  const std::map<std::string, double> told = Told(metrics.TakeChanges());
  EXPECT_EQ(told.size(), ProcessMetrics::kMaxMetrics);
  EXPECT_EQ(told.at("c0_total"), 1);
}

TEST(ProcessMetricsTest, LabelsTravel) {
  ProcessMetrics metrics;
  metrics.Counter("c_total", "C.\xff", {{"l", "a\xff"}}).Add();
  metrics.Counter("c_total", "C.", {{"l", std::string(1000, 'x')}}).Add();
  const v1::MetricReport report = metrics.TakeChanges();
  // A message with other bytes would not be read.
  v1::MetricReport read;
  ASSERT_TRUE(read.ParseFromString(report.SerializeAsString()));
  EXPECT_THAT(
      Told(read),
      ElementsAre(
          Pair("c_total l=a\xEF\xBF\xBD", 1),
          Pair(absl::StrCat("c_total l=",
                            std::string(ProcessMetrics::kMaxLabelBytes, 'x')),
               1)));
}

TEST(ProcessMetricsTest, ManyThreadsLoseNothing) {
  ProcessMetrics metrics;
  constexpr int kThreads = 4, kEach = 10000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      MetricHistogram& seconds = metrics.Histogram("run_seconds", "Time.");
      for (int k = 0; k < kEach; ++k) seconds.RecordMicros(k % 50);
    });
  }
  for (int i = 0; i < 100; ++i) metrics.TakeChanges();
  for (std::thread& thread : threads) thread.join();
  metrics.TellAgain();
  const v1::MetricReport report = metrics.TakeChanges();
  EXPECT_THAT(Told(report), ElementsAre(Pair("run_seconds", kThreads * kEach)));
  // Of 0 to 49 us: 11 of 50 up to 10 us, 20 up to 30 us, 19 up to 100 us.
  const v1::MetricSeries& series = report.families(0).series(0);
  EXPECT_EQ(series.counts(0), kThreads * kEach / 50 * 11);
  EXPECT_EQ(series.counts(1), kThreads * kEach / 50 * 20);
  EXPECT_EQ(series.counts(2), kThreads * kEach / 50 * 19);
  // 49 * 50 / 2 us in each 50.
  EXPECT_DOUBLE_EQ(series.sum_seconds(), kThreads * kEach / 50 * 1225 / 1e6);
}

}  // namespace
}  // namespace miniray
