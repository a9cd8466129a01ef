#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchTrainFunctionsTest, MeasuresThePeersOnTheSameNetwork) {
  // The program fails unless all networks have as many parameters, and the
  // ranks the same weights in the end.
  const auto rows = RunBench("train_functions", {"--batch=2", "--steps=2"});
  ASSERT_TRUE(rows.contains("2 ranks of a train function"));
  const auto& row = rows["2 ranks of a train function"];
  ASSERT_EQ(row.size(), 2);
  EXPECT_EQ(row[0]["peer_name"], "2 plain processes");
  if (row[1]["peer_name"] == "PyTorch DDP") {
    EXPECT_EQ(row[1]["at_least"], 1.0);
  } else {
    EXPECT_EQ(row[1]["peer_name"], "PyTorch: not installed");
  }
  const auto& death = rows["3 ranks, one is killed, the others are told"];
  ASSERT_EQ(death.size(), 1);
  EXPECT_GT(death[0]["ours"], 0);
  EXPECT_EQ(death[0]["at_most"], 1000);
}

}  // namespace
}  // namespace miniray
