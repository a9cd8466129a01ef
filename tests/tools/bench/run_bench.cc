#include "tests/tools/bench/run_bench.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"

namespace miniray {

nlohmann::json RunBench(const std::string& name,
                        std::vector<std::string> flags) {
  ProcessTree tree;
  std::vector<std::string> argv = {BuiltProgram("tools/bench/" + name)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  argv.insert(argv.end(), {"--rounds=1", "--wait_idle=0", "--json"});
  const RunResult result = tree.Run(argv);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(tree.WaitForCount(0));
  EXPECT_TRUE(std::filesystem::is_empty(tree.folder() + "/runtime"));
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  nlohmann::json rows = nlohmann::json::object();
  if (!json.is_object() || !json.contains("rows")) {
    ADD_FAILURE() << "no JSON with rows: " << result.out;
    return rows;
  }
  EXPECT_EQ(json["bench"], name);
  for (const auto& row : json["rows"]) {
    const std::string peer = row["peer_name"].get<std::string>();
    EXPECT_TRUE(row["ours"].is_number()) << row;
    if (!peer.empty() && !absl::StrContains(peer, "not installed")) {
      EXPECT_TRUE(row["peer"].is_number() && row["peer"] > 0) << row;
    }
    // What has a target has a verdict.
    EXPECT_EQ(row["held"].is_null(),
              row["at_most"].is_null() && row["at_least"].is_null())
        << row;
    rows[row["what"].get<std::string>()].push_back(row);
  }
  return rows;
}

}  // namespace miniray
