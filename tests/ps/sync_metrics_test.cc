#include "ps/sync_metrics.h"

#include <map>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "tests/runtime/metrics/told.h"

namespace miniray::ps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Pair;

std::map<std::string, double> Figures(ProcessMetrics* metrics) {
  return Told(metrics->TakeChanges(), OfHistograms::kSumSeconds);
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
                          Pair("miniray_sync_seconds phase=aggregate", 0.5),
                          Pair("miniray_sync_seconds phase=pull", 1),
                          Pair("miniray_sync_seconds phase=push", 0.25),
                          Pair("miniray_syncs_total result=error", 1),
                          Pair("miniray_syncs_total result=ok", 2)));
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
                          Pair("miniray_sync_seconds phase=push", 2),
                          Pair("miniray_syncs_total result=ok", 1)));
}

TEST(SyncMetricsTest, OneOfGradientsThatFailsIsCounted) {
  ParameterServer server("sgd", {{"lr", 0.1}}, {}, {});
  ProcessMetrics::Get().TakeChanges();
  EXPECT_FALSE(server.SyncGradientsFromWorkers({}).ok());
  EXPECT_THAT(Figures(&ProcessMetrics::Get()),
              Contains(Pair("miniray_syncs_total result=error", 1)));
}

}  // namespace
}  // namespace miniray::ps
