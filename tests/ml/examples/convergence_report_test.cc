#include "ml/examples/convergence_report.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ConvergenceRow Row(ConvergencePart part, const std::string& strategy,
                   double accuracy, int broken = 0,
                   absl::Status status = absl::OkStatus()) {
  return {.part = part,
          .strategy = strategy,
          .workers = 7,
          .broken = broken,
          .result = {.evaluation = {.accuracy = accuracy, .loss = 0.5},
                     .status = std::move(status)}};
}

// What is said of `strategy` with these accuracies.
ConvergenceStatement Broken(const std::string& strategy, double sound,
                            double broken,
                            absl::Status status = absl::OkStatus()) {
  const auto statements = ConvergenceStatements(
      {Row(ConvergencePart::kBrokenWorker, strategy, sound),
       Row(ConvergencePart::kBrokenWorker, strategy, broken, 1,
           std::move(status))});
  EXPECT_THAT(statements, SizeIs(1));
  return statements[0];
}

TEST(ConvergenceStatementsTest, ARobustStrategyLosesOnePointAtMost) {
  EXPECT_TRUE(Broken("median", 0.85, 0.84).held);
  EXPECT_TRUE(Broken("median", 0.85, 0.87).held);
  EXPECT_FALSE(Broken("median", 0.85, 0.8399).held);
  EXPECT_FALSE(Broken("krum", 0.85, 0.85, absl::AbortedError("x")).held);
  EXPECT_THAT(Broken("krum", 0.85, 0.8399).text,
              HasSubstr("83.99 % instead of 85.00 %"));
}

TEST(ConvergenceStatementsTest, AverageLosesMuchOrFails) {
  EXPECT_TRUE(Broken("average", 0.85, 0.1).held);
  EXPECT_TRUE(Broken("average", 0.85, 0.85, absl::AbortedError("NaN")).held);
  EXPECT_FALSE(Broken("average", 0.85, 0.76).held);
}

TEST(ConvergenceStatementsTest, DiLoCoIsAtLeastAsGoodAsAverage) {
  const auto held = [](double average, double diloco) {
    const auto statements = ConvergenceStatements(
        {Row(ConvergencePart::kRareSyncs, "average", average),
         Row(ConvergencePart::kRareSyncs, "diloco", diloco)});
    EXPECT_THAT(statements, SizeIs(1));
    return statements[0].held;
  };
  EXPECT_TRUE(held(0.85, 0.85));
  EXPECT_TRUE(held(0.85, 0.86));
  EXPECT_FALSE(held(0.85, 0.8499));
}

TEST(ConvergenceStatementsTest, NothingIsSaidOfWhatDidNotRun) {
  EXPECT_THAT(ConvergenceStatements({}), IsEmpty());
  EXPECT_THAT(ConvergenceStatements(
                  {Row(ConvergencePart::kEveryStrategy, "average", 0.9),
                   Row(ConvergencePart::kEveryStrategy, "diloco", 0.1),
                   Row(ConvergencePart::kRareSyncs, "average", 0.9),
                   Row(ConvergencePart::kBrokenWorker, "krum", 0.9)}),
              IsEmpty());
}

TEST(ConvergenceReportTest, JsonHasAllThatTheTextHas) {
  ConvergenceRow row = Row(ConvergencePart::kBrokenWorker, "average", 0.1, 1,
                           absl::AbortedError("no weights"));
  row.result.evaluation.loss = std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(ConvergenceJson(
      {{"steps", "20"}},
      {Row(ConvergencePart::kBrokenWorker, "average", 0.9), row}));
  EXPECT_EQ(json["settings"]["steps"], "20");
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][1]["part"], "broken worker");
  EXPECT_EQ(json["rows"][1]["accuracy"], 0.1);
  EXPECT_EQ(json["rows"][1]["broken"], 1);
  EXPECT_TRUE(json["rows"][1]["loss"].is_null());
  EXPECT_EQ(json["rows"][1]["error"], "no weights");
  ASSERT_EQ(json["statements"].size(), 1u);
  EXPECT_EQ(json["statements"][0]["held"], true);

  EXPECT_THAT(ConvergenceLine(row), HasSubstr("10.00 %        -"));
  EXPECT_THAT(ConvergenceLine(row), HasSubstr("ended early: no weights"));
  EXPECT_EQ(ConvergenceLine(ConvergenceStatement{"x", false}), "MISSED  x");
}

}  // namespace
}  // namespace miniray::ml
