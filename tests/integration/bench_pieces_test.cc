// The benchmark of synchronisations in pieces, small: real links between
// network namespaces.

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

TEST(BenchPiecesTest, PullsAndPushesOverlap) {
  ProcessTree tree;
  const RunResult result =
      tree.Run({BuiltProgram("tools/bench/pieces"), "--mb=16", "--workers=2",
                "--gbit=0.2", "--piece_kb=1024", "--rounds=1", "--wait_idle=0",
                "--json"});
  if (absl::StrContains(result.err, "cannot make network namespaces")) {
    GTEST_SKIP() << result.err;
  }
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << result.out;
  ASSERT_EQ(json["rows"].size(), 3u);
  const auto& pieces = json["rows"][0];
  const auto& at_once = json["rows"][2];
  // The link holds: otherwise this says nothing.
  EXPECT_GT(at_once["ours"].get<double>(), 0.9 * at_once["peer"].get<double>());
  // In turn they would need as long: far from 1, also on a busy machine.
  EXPECT_LT(pieces["ratio"].get<double>(), 0.85) << result.out;
  EXPECT_TRUE(tree.WaitForCount(0));
}

}  // namespace
}  // namespace miniray
