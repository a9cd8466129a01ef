#include "runtime/metrics/system_metrics.h"

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// The number behind `series` on the page; -1: it is not there.
double ValueOf(const std::string& page, const std::string& series) {
  const size_t at = page.find("\n" + series + " ");
  return at == std::string::npos
             ? -1
             : std::stod(page.substr(at + series.size() + 2));
}

TEST(CpuSecondsTest, AreReadFromTheFirstLine) {
  EXPECT_THAT(ParseCpuSeconds("cpu  200 100 300 4000 50 0 25 5 150 0\n"
                              "cpu0 1 2 3 4 5 6 7 8 9 10\n",
                              100),
              ElementsAre(Pair("user", 2), Pair("nice", 1), Pair("system", 3),
                          Pair("idle", 40), Pair("iowait", 0.5), Pair("irq", 0),
                          Pair("softirq", 0.25), Pair("steal", 0.05)));
  // An older kernel has fewer.
  EXPECT_THAT(ParseCpuSeconds("cpu 100 0", 100),
              ElementsAre(Pair("user", 1), Pair("nice", 0)));
  EXPECT_THAT(ParseCpuSeconds("", 100), IsEmpty());
  EXPECT_THAT(ParseCpuSeconds("intr 1 2", 100), IsEmpty());
}

TEST(SystemMetricsTest, TheMachineAndThisProcessAreThere) {
  MetricPage page;
  AddCpuMetrics(&page);
  AddProcessMetrics(&page);
  const std::string text = page.Text();
  EXPECT_GE(ValueOf(text, "miniray_node_cpus"), 1);
  EXPECT_GT(ValueOf(text, "miniray_node_cpu_seconds_total{mode=\"user\"}"), 0);
  EXPECT_GT(ValueOf(text, "miniray_node_cpu_seconds_total{mode=\"idle\"}"), 0);
  EXPECT_GE(ValueOf(text, "process_cpu_seconds_total"), 0);
  // This test has some megabytes, not terabytes.
  EXPECT_GT(ValueOf(text, "process_resident_memory_bytes"), 1e6);
  EXPECT_LT(ValueOf(text, "process_resident_memory_bytes"), 1e12);
  EXPECT_GE(ValueOf(text, "process_open_fds"), 3);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  // Clocks that were corrected since the machine started count for little.
  EXPECT_LT(ValueOf(text, "process_start_time_seconds"), now + 60);
  EXPECT_GT(ValueOf(text, "process_start_time_seconds"), now - 24 * 3600);
}

}  // namespace
}  // namespace miniray
