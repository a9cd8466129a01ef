#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchKernelsTest, MeasuresEveryRow) {
  const auto rows = RunBench("kernels", {"--mb=4"});
  for (const char* threads : {", 1 thread", ", 2 threads"}) {
    EXPECT_TRUE(rows.contains(std::string("average") + threads));
    EXPECT_TRUE(rows.contains(std::string("median") + threads));
  }
  for (const char* strategy : {"average", "trimmed_mean", "bulyan", "fedadam",
                               "dp", "adam", "adagrad"}) {
    EXPECT_TRUE(rows.contains(std::string("strategy ") + strategy));
    EXPECT_TRUE(rows.contains(std::string("extra memory of ") + strategy));
  }
}

}  // namespace
}  // namespace miniray
