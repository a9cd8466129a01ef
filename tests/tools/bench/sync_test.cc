#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchSyncTest, MeasuresEveryRow) {
  const auto rows = RunBench("sync", {"--mb=1"});
  ASSERT_TRUE(rows.contains("sync, 4 workers"));
  ASSERT_TRUE(rows.contains("sync, 2 workers"));
  // Gloo, the floor, Open MPI.
  EXPECT_EQ(rows["sync, 4 workers"].size(), 3u);
  EXPECT_EQ(rows["sync, 2 workers"].size(), 3u);
  EXPECT_TRUE(rows.contains("extra memory of a sync, 4 workers"));
}

}  // namespace
}  // namespace miniray
