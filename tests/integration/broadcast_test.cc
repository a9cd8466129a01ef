// The benchmark of broadcasts, small: real links between network namespaces.

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

TEST(BroadcastTest, AValueReachesNodesThroughEachOther) {
  ProcessTree tree;
  const RunResult result =
      tree.Run({BuiltProgram("tools/bench/broadcast"), "--mb=12", "--nodes=3",
                "--gbit=0.2", "--rounds=1", "--wait_idle=0", "--json"});
  if (absl::StrContains(result.err, "cannot make network namespaces")) {
    GTEST_SKIP() << result.err;
  }
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << result.out;
  ASSERT_EQ(json["rows"].size(), 3u);
  const auto& one = json["rows"][0];
  const auto& passed_on = json["rows"][1];
  const auto& one_by_one = json["rows"][2];
  // The link holds: otherwise this says nothing.
  EXPECT_GT(one["ours"].get<double>(), 0.9 * one["peer"].get<double>());
  // A source that sends it to each needs three times as long: far from 2, also
  // on a busy machine.
  EXPECT_LT(passed_on["ratio"].get<double>(), 2) << result.out;
  EXPECT_LT(one_by_one["ratio"].get<double>(), 0.8) << result.out;
  EXPECT_TRUE(tree.WaitForCount(0));
}

}  // namespace
}  // namespace miniray
