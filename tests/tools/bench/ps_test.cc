#include <string>

#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchPsTest, MeasuresEveryRow) {
  const auto rows = RunBench("ps", {"--mb=1,2"});
  EXPECT_EQ(rows.size(), 4u);
  for (const std::string what :
       {"sync of 1 MB, 2 workers", "sync of 1 MB, 4 workers",
        "sync of 2 MB, 2 workers", "sync of 2 MB, 4 workers"}) {
    ASSERT_TRUE(rows.contains(what)) << what;
    // Gloo, the bytes, the memory work.
    ASSERT_EQ(rows[what].size(), 3u) << what;
    EXPECT_EQ(rows[what][0]["peer_name"], "Gloo all-reduce");
    const bool four = what.find("4 workers") != what.npos;
    EXPECT_EQ(rows[what][0]["at_most"], four ? 0.25 : 0.35);
    EXPECT_EQ(rows[what][1]["at_most"], 1.4);
  }
}

}  // namespace
}  // namespace miniray
