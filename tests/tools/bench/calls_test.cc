#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchCallsTest, MeasuresEveryRow) {
  const auto rows =
      RunBench("calls", {"--single_calls=20", "--flood_calls=500"});
  EXPECT_TRUE(rows.contains("one call at a time, same node"));
  EXPECT_TRUE(rows.contains("one call at a time, through TCP"));
  EXPECT_TRUE(rows.contains("calls in flight, 1 caller, 1 actor"));
  EXPECT_TRUE(rows.contains("calls in flight, 4 callers, 4 actors"));
}

}  // namespace
}  // namespace miniray
