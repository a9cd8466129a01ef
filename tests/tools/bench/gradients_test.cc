#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchGradientsTest, MeasuresEveryRow) {
  const auto rows = RunBench("gradients", {"--mb=1"});
  EXPECT_TRUE(rows.contains("step of AdamW, 1 worker, asynchronous"));
  EXPECT_TRUE(rows.contains("step of AdamW, 2 workers, in rounds"));
}

}  // namespace
}  // namespace miniray
