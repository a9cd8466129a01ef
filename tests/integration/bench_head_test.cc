// The benchmark of the head, small: it runs through, says what it measured, and
// leaves nothing behind.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

TEST(BenchHeadTest, MeasuresASmallCluster) {
  ProcessTree tree;
  const RunResult result =
      tree.Run({BuiltProgram("tools/bench/head"), "--daemons=20",
                "--actors=300", "--seconds=0.5", "--lists=5", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << result.out;
  EXPECT_GT(json["placements_per_second"].get<double>(), 0);
  EXPECT_GT(json["list_actors_p99_ms"].get<double>(), 0);
  EXPECT_GE(json["list_actors_p99_ms"].get<double>(),
            json["list_actors_p50_ms"].get<double>());
  EXPECT_GT(json["head_memory_mb"].get<double>(), 0);
  EXPECT_TRUE(tree.WaitForCount(0));
}

}  // namespace
}  // namespace miniray
