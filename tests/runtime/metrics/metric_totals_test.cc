#include "runtime/metrics/metric_totals.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/metrics/metric_page.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Page(const MetricTotals& totals) {
  MetricPage page;
  totals.AddTo(&page);
  return page.Text();
}

// Of one metric with one series, without labels where `label` is empty.
v1::MetricReport Report(v1::MetricKind kind, const std::string& name,
                        double value, const std::string& label = "",
                        const std::string& label_name = "l") {
  v1::MetricReport report;
  v1::MetricFamily* const family = report.add_families();
  family->set_name(name);
  family->set_help("Help.");
  family->set_kind(kind);
  v1::MetricSeries* const series = family->add_series();
  series->set_value(value);
  if (!label.empty()) {
    series->add_labels()->set_name(label_name);
    series->mutable_labels(0)->set_value(label);
  }
  return report;
}

v1::MetricReport Counter(const std::string& name, double value,
                         const std::string& label = "") {
  return Report(v1::METRIC_KIND_COUNTER, name, value, label);
}

v1::MetricReport Gauge(const std::string& name, double value,
                       const std::string& label = "") {
  return Report(v1::METRIC_KIND_GAUGE, name, value, label);
}

TEST(MetricTotalsTest, CountersAddUpAndOutliveTheirProcesses) {
  MetricTotals totals;
  totals.Add("p", Counter("c_total", 3));
  totals.Add("q", Counter("c_total", 10));
  EXPECT_THAT(Page(totals), HasSubstr("\nc_total 13\n"));
  totals.Add("p", Counter("c_total", 5));  // 2 more.
  EXPECT_THAT(Page(totals), HasSubstr("\nc_total 15\n"));
  totals.End("p");
  EXPECT_THAT(Page(totals), HasSubstr("\nc_total 15\n"));
  // The next process begins anew.
  totals.Add("r", Counter("c_total", 1));
  EXPECT_THAT(Page(totals), HasSubstr("\nc_total 16\n"));
}

TEST(MetricTotalsTest, GaugesAreOfThoseThatLive) {
  MetricTotals totals;
  totals.Add("p", Gauge("g", 3, "a"));
  totals.Add("q", Gauge("g", 4, "a"));
  totals.Add("q", Gauge("g", 5, "b"));
  EXPECT_EQ(Page(totals),
            "# HELP g Help.\n# TYPE g gauge\ng{l=\"a\"} 7\ng{l=\"b\"} 5\n");
  totals.Add("q", Gauge("g", 1, "a"));
  totals.End("p");
  EXPECT_THAT(Page(totals), HasSubstr("g{l=\"a\"} 1\n"));
  totals.End("q");
  EXPECT_EQ(Page(totals), "");
}

TEST(MetricTotalsTest, WhatOneProcessToldLast) {
  MetricTotals totals;
  totals.Add("p", Counter("c_total", 3, "a"));
  totals.Add("p", Counter("c_total", 4, "b"));
  totals.Add("p", Counter("c_total_more", 100));
  totals.Add("p", Counter("c", 100));
  totals.Add("p", Gauge("g", 5, "a"));
  totals.Add("p", Gauge("g", 1, "a"));
  totals.Add("q", Counter("c_total", 50, "a"));
  EXPECT_EQ(totals.Sum("p", "c_total"), 7);
  EXPECT_EQ(totals.Sum("p", "g"), 1);
  EXPECT_EQ(totals.Sum("p", "other"), 0);
  totals.End("p");
  EXPECT_EQ(totals.Sum("p", "c_total"), 0);
  EXPECT_EQ(totals.Sum("q", "c_total"), 50);
}

TEST(MetricTotalsTest, WhatAProcessCountsArrives) {
  ProcessMetrics process;
  MetricHistogram& seconds =
      process.Histogram("run_seconds", "How long.", {{"method", "Add"}});
  MetricTotals totals;
  // Seconds that add up exactly: multiples of 1/64.
  seconds.RecordMicros(15'625);
  totals.Add("p", process.TakeChanges());
  seconds.RecordMicros(400'000'000);
  seconds.RecordMicros(31'250);
  totals.Add("p", process.TakeChanges());
  totals.End("p");
  ProcessMetrics other;
  other.Histogram("run_seconds", "How long.", {{"method", "Add"}})
      .RecordMicros(15'625);
  totals.Add("q", other.TakeChanges());
  const std::string page = Page(totals);
  EXPECT_THAT(page, HasSubstr("# HELP run_seconds How long.\n"
                              "# TYPE run_seconds histogram\n"
                              "run_seconds_count{method=\"Add\"} 4\n"));
  // 0.015625 + 400 + 0.03125 + 0.015625.
  EXPECT_THAT(page, HasSubstr("run_seconds_sum{method=\"Add\"} 400.0625\n"));
  EXPECT_THAT(page, HasSubstr("_bucket{method=\"Add\",le=\"1e-05\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("_bucket{method=\"Add\",le=\"0.01\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("_bucket{method=\"Add\",le=\"0.03\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("_bucket{method=\"Add\",le=\"0.1\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("_bucket{method=\"Add\",le=\"300\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("_bucket{method=\"Add\",le=\"+Inf\"} 4\n"));
}

TEST(MetricTotalsTest, TooManySeriesAreOneAndNothingIsLost) {
  MetricTotals totals;
  constexpr int kExtra = 20;
  for (size_t i = 0; i < MetricTotals::kMaxSeries + kExtra; ++i) {
    totals.Add("p", Counter("c_total", 1, absl::StrCat("v", i)));
    totals.Add("p", Gauge("g", 1, absl::StrCat("v", i)));
  }
  // One that has no place of its own goes on counting by its own last value.
  totals.Add(
      "p", Counter("c_total", 4, absl::StrCat("v", MetricTotals::kMaxSeries)));
  const std::string page = Page(totals);
  EXPECT_THAT(page, HasSubstr("c_total{l=\"v0\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(absl::StrCat("c_total{l=\"(other)\"} ",
                                           kExtra + 3, "\n")));
  EXPECT_THAT(page, HasSubstr(absl::StrCat("g{l=\"(other)\"} ", kExtra, "\n")));
  EXPECT_THAT(page, Not(HasSubstr(absl::StrCat(
                        "c_total{l=\"v", MetricTotals::kMaxSeries, "\"}"))));
}

TEST(MetricTotalsTest, MemoryOfOneProcessIsBounded) {
  MetricTotals totals;
  for (size_t i = 0; i < MetricTotals::kMaxProcessSeries + 100; ++i) {
    totals.Add("p", Counter("c_total", 1, absl::StrCat("v", i)));
  }
  // 256 of their own, and the others up to the limit of the process.
  EXPECT_THAT(
      Page(totals),
      HasSubstr(absl::StrCat(
          "c_total{l=\"(other)\"} ",
          MetricTotals::kMaxProcessSeries - MetricTotals::kMaxSeries, "\n")));
  for (size_t i = 0; i < MetricTotals::kMaxMetrics + 10; ++i) {
    totals.Add("q", Counter(absl::StrCat("c", i, "_total"), 1));
  }
  // c_total is one of them.
  const std::string last =
      absl::StrCat("\nc", MetricTotals::kMaxMetrics - 2, "_total 1\n");
  const std::string beyond =
      absl::StrCat("\nc", MetricTotals::kMaxMetrics - 1, "_total 1\n");
  EXPECT_THAT(Page(totals), HasSubstr(last));
  EXPECT_THAT(Page(totals), Not(HasSubstr(beyond)));
}

TEST(MetricTotalsTest, NonsenseIsLeftOut) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  MetricTotals totals;
  totals.Add("p", Counter("c_total", 3));
  totals.Add("p", Counter("c_total", -1));
  totals.Add("p", Counter("c_total", kInfinity));
  totals.Add("p", Counter("c_total", 2));  // A counter does not fall.
  totals.Add("p", Gauge("c_total", 77));   // It was no gauge.
  for (const char* name : {"", "a b", "1a", "a{b=\"c\"}", "a\nb 1"}) {
    totals.Add("p", Counter(name, 1));
  }
  totals.Add("p", Report(v1::METRIC_KIND_UNSPECIFIED, "u", 1));
  for (const char* label : {"le", "__name__", "a b", "1"}) {
    totals.Add("p",
               Report(v1::METRIC_KIND_COUNTER, "labels_total", 1, "v", label));
  }
  totals.Add("p", Counter("long_total", 1, std::string(100'000, 'x')));
  // A histogram without its buckets, and a label twice.
  totals.Add("p", Report(v1::METRIC_KIND_HISTOGRAM, "h_seconds", 1));
  v1::MetricReport twice = Counter("twice_total", 1, "v");
  *twice.mutable_families(0)->mutable_series(0)->add_labels() =
      twice.families(0).series(0).labels(0);
  totals.Add("p", twice);
  EXPECT_EQ(Page(totals),
            "# HELP c_total Help.\n# TYPE c_total counter\nc_total 3\n");
}

TEST(MetricTotalsTest, LabelsInAnotherOrderAreTheSameSeries) {
  MetricTotals totals;
  v1::MetricReport report = Counter("c_total", 1, "v");
  v1::MetricSeries* const series =
      report.mutable_families(0)->mutable_series(0);
  series->add_labels()->set_name("a");
  series->mutable_labels(1)->set_value("w");
  totals.Add("p", report);
  series->mutable_labels()->SwapElements(0, 1);
  totals.Add("q", report);
  EXPECT_EQ(Page(totals),
            "# HELP c_total Help.\n# TYPE c_total counter\n"
            "c_total{a=\"w\",l=\"v\"} 2\n");
}

TEST(MetricTotalsTest, WhatThePageHasIsTheDaemons) {
  MetricTotals totals;
  totals.Add("p", Counter("miniray_oom_kills_total", 99));
  MetricPage page;
  page.Counter("miniray_oom_kills_total", "Real.", 1);
  totals.AddTo(&page);
  EXPECT_EQ(page.Text(),
            "# HELP miniray_oom_kills_total Real.\n"
            "# TYPE miniray_oom_kills_total counter\n"
            "miniray_oom_kills_total 1\n");
}

}  // namespace
}  // namespace miniray
