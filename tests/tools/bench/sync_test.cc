#include <string>

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
  EXPECT_EQ(rows["4 workers, keep_weights = false"].size(), 2u);
  EXPECT_EQ(rows["2 workers, keep_weights = false"].size(), 1u);
  const auto megabytes = [&](const std::string& what) {
    EXPECT_TRUE(rows.contains(what)) << what;
    return rows[what][0].value("ours", 0.0);
  };
  EXPECT_NEAR(megabytes("extra memory, 4 workers"),
              megabytes("of it the server's weights") +
                  megabytes("of it a sync beside them"),
              1e-3);
  EXPECT_GT(megabytes("extra memory, keep_weights = false"), 0);
}

}  // namespace
}  // namespace miniray
