#include "train/merge_metrics.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray::train {
namespace {

using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;
using ::testing::HasSubstr;

TEST(MergeEvaluationTest, MeansAreOverAllSamples) {
  // (3 * 1 + 1 * 5) / 4.
  const auto merged = MergeEvaluation(
      {{{"loss", 1}, {"samples", 3}}, {{"loss", 5}, {"samples", 1}}});
  ASSERT_THAT(merged, IsOk());
  EXPECT_EQ(*merged, (Metrics{{"loss", 2}, {"samples", 4}}));
}

TEST(MergeEvaluationTest, ItsMetricsAreToldFromTheOthers) {
  Metrics metrics = WithEvaluationPrefix({{"loss", 2}, {"samples", 4}});
  metrics["loss"] = 3;
  EXPECT_EQ(EvaluationOf(metrics),
            (Metrics{{"eval/loss", 2}, {"eval/samples", 4}}));
}

// Every cut of 49 samples in two, with every count of right answers: the very
// double that one process gets. Sums of products of rounded shares are not.
TEST(MergeEvaluationTest, SharesAreExact) {
  int inexact = 0;
  for (int n = 1; n < 49; ++n) {
    for (int a = 0; a <= n; ++a) {
      for (int b = 0; b <= 49 - n; ++b) {
        const double first = static_cast<double>(a) / n;
        const double second = static_cast<double>(b) / (49 - n);
        const auto merged =
            MergeEvaluation({{{"accuracy", first}, {"samples", n}},
                             {{"accuracy", second}, {"samples", 49 - n}}});
        ASSERT_THAT(merged, IsOk());
        ASSERT_EQ(merged->at("accuracy"), (a + b) / 49.0);
        inexact += (n * first + (49 - n) * second) / 49 != (a + b) / 49.0;
      }
    }
  }
  EXPECT_GT(inexact, 0);  // Else this test would show nothing.
}

TEST(MergeEvaluationTest, AShardWithoutSamplesDoesNotCount) {
  const auto merged =
      MergeEvaluation({{{"samples", 0}},
                       {{"loss", 2}, {"samples", 4}},
                       {{"loss", std::nan("")}, {"samples", 0}}});
  ASSERT_THAT(merged, IsOk());
  EXPECT_EQ(*merged, (Metrics{{"loss", 2}, {"samples", 4}}));
  EXPECT_THAT(MergeEvaluation({{{"samples", 0}}}),
              StatusIs(kFailedPrecondition, HasSubstr("no worker has")));
}

TEST(MergeEvaluationTest, KeepsWhatIsNotFinite) {
  const auto merged = MergeEvaluation({{{"loss", std::nan("")}, {"samples", 1}},
                                       {{"loss", 2}, {"samples", 1}}});
  ASSERT_THAT(merged, IsOk());
  EXPECT_TRUE(std::isnan(merged->at("loss")));
}

TEST(MergeEvaluationTest, NamesTheWorkerWhoseMetricsDoNotFit) {
  EXPECT_THAT(MergeEvaluation({{{"loss", 1}}}),
              StatusIs(kInvalidArgument, "worker 0 reports no 'samples'"));
  EXPECT_THAT(MergeEvaluation({{{"samples", 2}}, {{"samples", 1.5}}}),
              StatusIs(kInvalidArgument, HasSubstr("worker 1 reports 1.5")));
  const Metrics loss = {{"loss", 1}, {"samples", 1}};
  const Metrics none = {{"samples", 1}};
  EXPECT_THAT(MergeEvaluation({loss, none}),
              StatusIs(kInvalidArgument,
                       "worker 1 reports no 'loss', and worker 0 does"));
  EXPECT_THAT(MergeEvaluation({none, loss}),
              StatusIs(kInvalidArgument,
                       "worker 0 reports no 'loss', and worker 1 does"));
}

TEST(EpochPiecesTest, AnEpochIsThatOfItsPieces) {
  EpochPieces pieces(2);
  ASSERT_THAT(pieces.Add({{{"loss", 4}, {"samples", 8}, {"steps", 2}},
                          {{"loss", 1}, {"samples", 2}, {"steps", 2}}},
                         2),
              IsOk());
  EXPECT_EQ(pieces.most_steps(), 2);
  ASSERT_THAT(pieces.Add({{{"loss", 1}, {"samples", 4}, {"steps", 1}},
                          {{"samples", 0}, {"steps", 0}}},
                         2),
              IsOk());
  EXPECT_EQ(pieces.most_steps(), 1);
  const auto result = pieces.Result();
  ASSERT_THAT(result, IsOk());
  // (8 * 4 + 4 * 1) / 12, and of both (12 * 3 + 2 * 1) / 14.
  EXPECT_EQ(result->per_worker[0],
            (Metrics{{"loss", 3}, {"samples", 12}, {"steps", 3}}));
  EXPECT_EQ(result->per_worker[1],
            (Metrics{{"loss", 1}, {"samples", 2}, {"steps", 2}}));
  EXPECT_DOUBLE_EQ(result->metrics.at("loss"), 38.0 / 14);
  EXPECT_EQ(result->metrics.at("samples"), 14);
  EXPECT_EQ(result->max.at("loss"), 3);
}

TEST(EpochPiecesTest, StepsThatAreLeftOutAreCounted) {
  EpochPieces pieces(1);
  for (const Metrics& piece :
       {Metrics{{"samples", 2}, {"steps", 2}, {"skipped_steps", 2}},
        Metrics{{"loss", 1}, {"samples", 2}, {"steps", 2}},
        Metrics{
            {"loss", 3}, {"samples", 2}, {"steps", 2}, {"skipped_steps", 1}}}) {
    ASSERT_THAT(pieces.Add({piece}, 2), IsOk());
  }
  const auto result = pieces.Result();
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(
      result->per_worker[0],
      (Metrics{
          {"loss", 2}, {"samples", 6}, {"steps", 6}, {"skipped_steps", 3}}));
  EXPECT_EQ(result->metrics, result->per_worker[0]);
}

TEST(EpochPiecesTest, RefusesCountsThatCannotBe) {
  EpochPieces pieces(1);
  EXPECT_THAT(pieces.Add({{{"steps", 1}}}, 1),
              StatusIs(kInvalidArgument, "worker 0 reports no 'samples'"));
  EXPECT_THAT(pieces.Add({{{"samples", 1}}}, 1),
              StatusIs(kInvalidArgument, "worker 0 reports no 'steps'"));
  EXPECT_THAT(pieces.Add({{{"samples", 1}, {"steps", 3}}}, 2),
              StatusIs(kInvalidArgument, HasSubstr("3 steps; it was asked")));
}

}  // namespace
}  // namespace miniray::train
