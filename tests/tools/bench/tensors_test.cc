#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchTensorsTest, MeasuresEveryRow) {
  const auto rows = RunBench("tensors", {"--mb=1"});
  for (const char* what :
       {"result, same node", "result, same node, and read once",
        "read only, same node: copied", "read only, same node",
        "argument, same node"}) {
    EXPECT_TRUE(rows.contains(what)) << what;
  }
  // Whichever way it goes through TCP, the slices are what it is held against.
  for (const char* what :
       {"result, through TCP", "lent result, through TCP",
        "argument, through TCP", "lent argument, through TCP"}) {
    ASSERT_TRUE(rows.contains(what)) << what;
    EXPECT_EQ(rows[what][0]["peer_name"], "slices, one TCP connection") << what;
    EXPECT_EQ(rows[what][0]["at_least"], 1.2) << what;
  }
}

}  // namespace
}  // namespace miniray
