#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchTensorsTest, MeasuresEveryRow) {
  const auto rows = RunBench("tensors", {"--mb=1"});
  for (const char* what :
       {"result, same node", "result, same node, and read once",
        "read only, same node: copied", "read only, same node",
        "argument, same node", "result, through TCP",
        "argument, through TCP"}) {
    EXPECT_TRUE(rows.contains(what)) << what;
  }
}

}  // namespace
}  // namespace miniray
