// strategy_convergence, short and on made-up images: it trains with real
// workers, what it is to show holds there, and it says the same each time.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class StrategyConvergenceTest : public ::testing::Test {
 protected:
  RunResult Run(std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 BuiltProgram("ml/examples/strategy_convergence"));
    return tree_.Run(std::move(flags));
  }

  // On 420 synthetic images; the rows by strategy and number of broken workers,
  // e.g. "broken worker, median, 1".
  nlohmann::json RunShort(int steps, std::vector<std::string> flags) {
    flags.insert(flags.end(),
                 {"--dataset=synthetic", "--limit=420",
                  "--steps=" + std::to_string(steps), "--sync-interval=10",
                  "--rare-sync-interval=20", "--batch-size=16", "--hidden=16",
                  "--lr=0.02", "--json"});
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

// Ten classes that are easy to tell apart: after so many steps sound training
// knows all images, so that no statement hangs on a few of them. With --check
// all statements hold, or the program fails.
TEST_F(StrategyConvergenceTest, WhatItIsToShowHolds) {
  // Not krum: one worker's model does not know all classes.
  const std::vector<std::string> robust = {"median", "trimmed_mean",
                                           "multi_krum", "bulyan"};
  const auto json =
      RunShort(240, {"--check",
                     "--strategies=average,median,trimmed_mean,multi_krum,"
                     "bulyan,diloco"});
  const auto& rows = json["rows"];
  std::vector<std::string> sound = {
      "every strategy, one process, 0",   "every strategy, average, 0",
      "every strategy, diloco, 0",        "rare synchronisations, average, 0",
      "rare synchronisations, diloco, 0", "broken worker, average, 0"};
  for (const std::string& name : robust) {
    sound.push_back("every strategy, " + name + ", 0");
    sound.push_back("broken worker, " + name + ", 0");
    // As good as without the broken one.
    sound.push_back("broken worker, " + name + ", 1");
  }
  for (const std::string& name : sound) {
    ASSERT_TRUE(rows.contains(name)) << name << " is not in " << rows;
    EXPECT_GT(rows[name]["accuracy"], 0.98) << name;
    EXPECT_EQ(rows[name]["error"], "") << name;
  }
  // Weights grow 14-fold in each synchronisation, and what two layers make of
  // them 200-fold: after 24 that is beyond any float.
  EXPECT_THAT(rows["broken worker, average, 1"]["error"].get<std::string>(),
              Not(IsEmpty()));
  EXPECT_EQ(rows.size(), sound.size() + 1);
  EXPECT_EQ(rows["broken worker, median, 1"]["workers"], 7);
  // Both are right everywhere; the loss tells them apart.
  EXPECT_LT(rows["rare synchronisations, diloco, 0"]["loss"].get<double>(),
            rows["rare synchronisations, average, 0"]["loss"].get<double>());

  std::vector<std::string> held;
  for (const auto& statement : json["statements"]) {
    EXPECT_EQ(statement["held"], true) << statement["text"];
    held.push_back(statement["text"].get<std::string>());
  }
  EXPECT_EQ(held.size(), robust.size() + 2);
  EXPECT_THAT(held, Contains(HasSubstr("diloco is at least as good")));
  EXPECT_THAT(held, Contains(HasSubstr("average does not stand")));
  for (const std::string& name : robust) {
    EXPECT_THAT(held, Contains(HasSubstr(name + " loses at most 1 point")));
  }
}

TEST_F(StrategyConvergenceTest, AverageRefusesNanAndTheSameSeedIsTheSameRun) {
  const std::vector<std::string> flags = {"--strategies=average,adam",
                                          "--broken=nan"};
  const auto first = RunShort(60, flags);
  const auto& broken = first["rows"]["broken worker, average, 1"];
  EXPECT_THAT(broken["error"].get<std::string>(),
              HasSubstr("worker 6 (ConvergenceWorker"));
  // Chance is 0.1.
  EXPECT_GT(first["rows"]["gradients, adam, 0"]["accuracy"], 0.5);
  EXPECT_GT(first["rows"]["every strategy, average, 0"]["accuracy"], 0.5);
  const auto second = RunShort(60, flags);
  ASSERT_EQ(second["rows"].size(), first["rows"].size());
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
