// Prometheus's text format. What is expected here, promtool of Prometheus 2.42
// has accepted; tests/integration/prometheus_test.cc asks it for real pages.

#include "runtime/metrics/metric_page.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

TEST(MetricPageTest, SeriesOfAMetricStandTogether) {
  MetricPage page;
  page.Gauge("miniray_actors", "Actors by state.", 3, {{"state", "alive"}});
  page.Counter("miniray_calls_total", "Calls.", 1e10);
  page.Gauge("miniray_actors", "Another text.", 0, {{"state", "dead"}});
  EXPECT_EQ(page.Text(),
            "# HELP miniray_actors Actors by state.\n"
            "# TYPE miniray_actors gauge\n"
            "miniray_actors{state=\"alive\"} 3\n"
            "miniray_actors{state=\"dead\"} 0\n"
            "# HELP miniray_calls_total Calls.\n"
            "# TYPE miniray_calls_total counter\n"
            "miniray_calls_total 10000000000\n");
  EXPECT_TRUE(page.Has("miniray_actors"));
  EXPECT_FALSE(page.Has("miniray_actor"));
}

TEST(MetricPageTest, HistogramsCountUp) {
  MetricPage page;
  const std::vector<double> bounds = {1e-05, 0.1, 300};
  const std::vector<uint64_t> counts = {1, 0, 2, 4};
  page.Histogram("miniray_call_run_seconds", "How long.", bounds, counts, 1.5,
                 {{"method", "Add"}});
  EXPECT_EQ(page.Text(),
            "# HELP miniray_call_run_seconds How long.\n"
            "# TYPE miniray_call_run_seconds histogram\n"
            "miniray_call_run_seconds_count{method=\"Add\"} 7\n"
            "miniray_call_run_seconds_sum{method=\"Add\"} 1.5\n"
            "miniray_call_run_seconds_bucket{method=\"Add\",le=\"1e-05\"} 1\n"
            "miniray_call_run_seconds_bucket{method=\"Add\",le=\"0.1\"} 1\n"
            "miniray_call_run_seconds_bucket{method=\"Add\",le=\"300\"} 3\n"
            "miniray_call_run_seconds_bucket{method=\"Add\",le=\"+Inf\"} 7\n");
}

TEST(MetricPageTest, ValuesOfLabelsAndHelpMayBeAnything) {
  MetricPage page;
  page.Gauge("m", "A \\ and\na line.", 1, {{"class", "a\"b\\c\nd\xff"}});
  EXPECT_EQ(page.Text(),
            "# HELP m A \\\\ and\\na line.\n"
            "# TYPE m gauge\n"
            "m{class=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\"} 1\n");
}

TEST(MetricPageTest, ALossMayBeNoNumber) {
  MetricPage page;
  page.Gauge("a", "A.", std::nan(""));
  page.Gauge("b", "B.", std::numeric_limits<double>::infinity());
  page.Gauge("c", "C.", -std::numeric_limits<double>::infinity());
  page.Gauge("d", "D.", 1.0 / 3);
  // Prometheus reads numbers as Go does: NaN in any case of letters.
  EXPECT_THAT(page.Text(), HasSubstr("\na Nan\n"));
  EXPECT_THAT(page.Text(), HasSubstr("\nb +Inf\n"));
  EXPECT_THAT(page.Text(), HasSubstr("\nc -Inf\n"));
  EXPECT_THAT(page.Text(), HasSubstr("\nd 0.3333333333333333\n"));
}

TEST(MetricPageTest, Names) {
  for (const char* name : {"a", "_a", "miniray_x2_total", "A"}) {
    EXPECT_TRUE(IsMetricName(name)) << name;
  }
  for (const char* name : {"", "2a", "a-b", "a b", "a:b", "\xc3\xa4", "a\n"}) {
    EXPECT_FALSE(IsMetricName(name)) << name;
  }
}

}  // namespace
}  // namespace miniray
