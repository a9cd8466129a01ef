// strategy_convergence, short and on made-up images: it trains with real
// workers, says all that it is to say, and the same each time.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StrategyConvergenceTest : public ::testing::Test {
 protected:
  RunResult Run(std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 BuiltProgram("ml/examples/strategy_convergence"));
    return tree_.Run(std::move(flags));
  }

  // On 420 synthetic images; the rows by strategy and number of broken workers,
  // e.g. "broken worker, median, 1".
  nlohmann::json RunShort(std::vector<std::string> flags) {
    flags.insert(flags.end(),
                 {"--dataset=synthetic", "--limit=420", "--steps=60",
                  "--sync-interval=10", "--rare-sync-interval=20",
                  "--batch-size=16", "--hidden=16", "--lr=0.02", "--json"});
    const RunResult result = Run(std::move(flags));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
    nlohmann::json json = nlohmann::json::parse(result.out, nullptr, false);
    if (!json.is_object()) {
      ADD_FAILURE() << "no JSON: " << result.out;
      return json;
    }
    nlohmann::json rows = nlohmann::json::object();
    for (const auto& row : json["rows"]) {
      rows[row["part"].get<std::string>() + ", " +
           row["strategy"].get<std::string>() + ", " +
           std::to_string(row["broken"].get<int>())] = row;
    }
    json["rows"] = rows;
    return json;
  }

  ProcessTree tree_;
};

TEST_F(StrategyConvergenceTest, TrainsAndSaysWhatHeld) {
  const auto json = RunShort({"--strategies=average,median,diloco,adam"});
  const auto& rows = json["rows"];
  for (const std::string name :
       {"every strategy, one process, 0", "every strategy, average, 0",
        "every strategy, median, 0", "every strategy, diloco, 0",
        "gradients, adam, 0", "rare synchronisations, average, 0",
        "rare synchronisations, diloco, 0", "broken worker, average, 0",
        "broken worker, average, 1", "broken worker, median, 0",
        "broken worker, median, 1"}) {
    ASSERT_TRUE(rows.contains(name)) << name << " is not in " << rows;
  }
  EXPECT_EQ(rows.size(), 11u);
  // Ten classes that are easy to tell apart; chance is 0.1.
  EXPECT_GT(rows["every strategy, average, 0"]["accuracy"], 0.5);
  EXPECT_GT(rows["gradients, adam, 0"]["accuracy"], 0.5);
  EXPECT_GT(rows["broken worker, median, 0"]["accuracy"], 0.5);
  EXPECT_GT(rows["broken worker, median, 1"]["accuracy"], 0.5);
  // Weights that are all too large say the same class, but with what loss.
  const auto& broken = rows["broken worker, average, 1"]["loss"];
  EXPECT_TRUE(broken.is_null() ||
              broken >
                  10 * rows["broken worker, average, 0"]["loss"].get<double>())
      << broken;
  EXPECT_EQ(rows["broken worker, median, 1"]["workers"], 7);
  EXPECT_EQ(json["statements"].size(), 3u);
}

TEST_F(StrategyConvergenceTest, AverageRefusesNanAndTheSameSeedIsTheSameRun) {
  const auto first = RunShort({"--strategies=average", "--broken=nan"});
  const auto& broken = first["rows"]["broken worker, average, 1"];
  EXPECT_THAT(broken["error"].get<std::string>(),
              HasSubstr("worker 6 (ConvergenceWorker"));
  const auto second = RunShort({"--strategies=average", "--broken=nan"});
  for (const auto& [name, row] : first["rows"].items()) {
    EXPECT_EQ(row["accuracy"], second["rows"][name]["accuracy"]) << name;
    EXPECT_EQ(row["loss"], second["rows"][name]["loss"]) << name;
  }
}

TEST_F(StrategyConvergenceTest, BadUsageExitsWith2) {
  const auto expect = [&](std::vector<std::string> flags,
                          const std::string& text) {
    const RunResult result = Run(std::move(flags));
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_THAT(result.err, HasSubstr(text));
  };
  expect({"--strategies=avarage"}, "expected some of average, weighted");
  expect({"--steps=105"}, "--steps is 105");
  expect({"--sync-interval=0"}, "1 or more");
  expect({"--skew=2"}, "--skew is 2");
  expect({"--broken=much"}, "expected scaled or nan");
  expect({"--lr=0"}, "--lr");
  expect({"--batch-size=0"}, "--batch-size");
  EXPECT_EQ(Run({"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace miniray
