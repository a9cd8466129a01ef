#include <string>

#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchTrainTest, MeasuresEveryRowOnTheSameTraining) {
  // The program fails unless one worker and the plain loop have the same loss.
  const auto rows = RunBench("train", {"--epoch_samples=20", "--batch=8"});
  ASSERT_TRUE(rows.contains("1 worker, sync every epoch"));
  for (const char* sync : {"epoch", "5 epochs", "step"}) {
    const std::string what = std::string("2 workers, sync every ") + sync;
    ASSERT_TRUE(rows.contains(what)) << what;
    EXPECT_EQ(rows[what][0]["peer_name"], "2 plain processes");
    EXPECT_TRUE(rows[what][0]["at_least"].is_number());
  }
}

}  // namespace
}  // namespace miniray
