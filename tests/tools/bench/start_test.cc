#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchStartTest, MeasuresEveryRow) {
  const auto rows = RunBench("start", {});
  EXPECT_TRUE(rows.contains("head and daemon up and answering, miniray start"));
  EXPECT_TRUE(rows.contains("head and daemon up and answering, embedded"));
  const char* const actor =
      "create and first call of a warm actor with LibTorch";
  ASSERT_TRUE(rows.contains(actor));
  // Alone, a program that is run, a fork, Ray.
  EXPECT_EQ(rows[actor].size(), 4u);
  EXPECT_TRUE(rows.contains("8 of them"));
}

}  // namespace
}  // namespace miniray
