#include "ps/sync_metrics.h"

#include <map>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// The value of each series; of a histogram: the seconds of all.
std::map<std::string, double> Figures(ProcessMetrics* metrics) {
  std::map<std::string, double> figures;
  const auto changes = metrics->TakeChanges();
  for (const v1::MetricFamily& family : changes.families()) {
    for (const v1::MetricSeries& series : family.series()) {
      std::string name = family.name();
      for (const v1::MetricLabel& label : series.labels()) {
        name += " " + label.value();
      }
      figures[name] = family.kind() == v1::METRIC_KIND_HISTOGRAM
                          ? series.sum_seconds()
                          : series.value();
    }
  }
  return figures;
}

TEST(SyncMetricsTest, PhasesBytesAndEndsAreCounted) {
  ProcessMetrics metrics;
  SyncResult result;
  result.bytes = 1000;
  result.seconds_pull = 0.5;
  result.seconds_aggregate = 0.25;
  result.seconds_push = 0.125;
  RecordSync(result, &metrics);
  RecordSync(result, &metrics);
  RecordSync(absl::UnavailableError("a worker died"), &metrics);
  EXPECT_THAT(Figures(&metrics),
              ElementsAre(Pair("miniray_sync_bytes_total", 2000),
                          Pair("miniray_sync_seconds aggregate", 0.5),
                          Pair("miniray_sync_seconds pull", 1),
                          Pair("miniray_sync_seconds push", 0.25),
                          Pair("miniray_syncs_total error", 1),
                          Pair("miniray_syncs_total ok", 2)));
}

TEST(SyncMetricsTest, APushThatIsRepeatedIsAPush) {
  ProcessMetrics metrics;
  SyncResult result;
  result.repeated = true;
  result.bytes = 10;
  result.seconds_push = 2;
  RecordSync(result, &metrics);
  EXPECT_THAT(Figures(&metrics),
              ElementsAre(Pair("miniray_sync_bytes_total", 10),
                          Pair("miniray_sync_seconds push", 2),
                          Pair("miniray_syncs_total ok", 1)));
}

}  // namespace
}  // namespace miniray::ps
