#include "ml/examples/regression_worker.h"

#include <cmath>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"
#include "train/merge_metrics.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;

RegressionWorkerOptions Small() {
  return {.made_rows = 60, .batch_size = 8, .hidden = 8, .device = "cpu"};
}

void ExpectSameWeights(const RegressionWorker& a, const RegressionWorker& b) {
  ASSERT_OK_AND_ASSIGN(const NamedTensors left, a.GetWeights());
  ASSERT_OK_AND_ASSIGN(const NamedTensors right, b.GetWeights());
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(at::equal(left[i].second, right[i].second)) << left[i].first;
  }
}

TEST(RegressionWorkerTest, NeedsDataFirst) {
  RegressionWorker worker(Small());
  ExpectError(worker.TrainEpoch(0).status(), kFailedPrecondition,
              {"LoadDataShard"});
  ExpectError(worker.EvaluateShard(0, 1).status(), kFailedPrecondition,
              {"LoadDataShard"});
  ExpectError(worker.GetWeights().status(), kFailedPrecondition,
              {"LoadDataShard"});
  ExpectError(worker.SaveCheckpoint().status(), kFailedPrecondition,
              {"LoadDataShard"});
}

TEST(RegressionWorkerTest, ShardsAreAllRowsThatAreNotTested) {
  int64_t rows = 0;
  for (int shard = 0; shard < 3; ++shard) {
    RegressionWorker worker(Small());
    ASSERT_TRUE(worker.LoadDataShard(shard, 3).ok());
    rows += *worker.NumSamples();
  }
  EXPECT_EQ(rows, 48);  // Of 60, a fifth is for the test.
}

TEST(RegressionWorkerTest, EvaluationOfShardsIsThatOfTheWhole) {
  RegressionWorker worker(Small());
  ASSERT_TRUE(worker.LoadDataShard(0, 1).ok());
  ASSERT_TRUE(worker.TrainEpoch(0).ok());
  ASSERT_OK_AND_ASSIGN(const train::Metrics whole, worker.EvaluateShard(0, 1));
  EXPECT_EQ(whole.at("samples"), 12);
  for (const int num_shards : {5, 12, 20}) {  // Of 20, eight have no row.
    std::vector<train::Metrics> shards;
    for (int shard = 0; shard < num_shards; ++shard) {
      ASSERT_OK_AND_ASSIGN(train::Metrics part,
                           worker.EvaluateShard(shard, num_shards));
      shards.push_back(std::move(part));
    }
    ASSERT_OK_AND_ASSIGN(const train::Metrics merged,
                         train::MergeEvaluation(shards));
    ASSERT_EQ(merged.size(), whole.size());
    for (const auto& [name, value] : whole) {
      EXPECT_NEAR(merged.at(name), value, 1e-5 * std::abs(value)) << name;
    }
  }
}

TEST(RegressionWorkerTest, GoesOnFromACheckpoint) {
  RegressionWorker one(Small());
  ASSERT_TRUE(one.LoadDataShard(0, 2).ok());
  ASSERT_TRUE(one.TrainEpoch(0).ok());
  ASSERT_OK_AND_ASSIGN(const train::CheckpointFiles files,
                       one.SaveCheckpoint());
  ASSERT_TRUE(one.TrainEpoch(1).ok());

  RegressionWorker other(Small());
  ASSERT_TRUE(other.LoadDataShard(0, 2).ok());
  ASSERT_TRUE(other.LoadCheckpoint(files).ok());
  ASSERT_TRUE(other.TrainEpoch(1).ok());
  ExpectSameWeights(one, other);
}

class RegressionTableTest : public ::testing::Test {
 protected:
  // 20 rows; what stands in a row is `columns(i)`.
  template <class Columns>
  std::string Write(const std::string& names, const Columns& columns) {
    std::string text = names + "\n";
    for (int i = 0; i < 20; ++i) absl::StrAppend(&text, columns(i), "\n");
    return WriteTestFile(folder_, "table.csv", text);
  }

  const std::string folder_ = MakeTestFolder();
};

TEST_F(RegressionTableTest, AConstantColumnSaysNothing) {
  RegressionWorkerOptions options = Small();
  options.data = Write(
      "x,always,y", [](int i) { return absl::StrCat(i, ",0.1,", 2 * i + 1); });
  RegressionWorker worker(options);
  ASSERT_TRUE(worker.LoadDataShard(0, 1).ok());
  for (int epoch = 0; epoch < 3; ++epoch) {
    ASSERT_OK_AND_ASSIGN(const train::Metrics metrics,
                         worker.TrainEpoch(epoch));
    // Scaled targets have variance 1, so the first guesses are not far off.
    EXPECT_LT(metrics.at("loss"), 4);
  }
}

TEST_F(RegressionTableTest, TheTargetIsAnyColumn) {
  RegressionWorkerOptions options = Small();
  options.data =
      Write("y,x", [](int i) { return absl::StrCat(100 * i, ",", i); });
  options.target = "y";
  RegressionWorker worker(options);
  ASSERT_TRUE(worker.LoadDataShard(0, 1).ok());
  ASSERT_OK_AND_ASSIGN(const train::Metrics metrics,
                       worker.EvaluateShard(0, 1));
  // In the target's unit, hundreds.
  EXPECT_GT(metrics.at("constant_squared_error"), 10000);
}

TEST_F(RegressionTableTest, RefusesWhatCannotBeLearned) {
  RegressionWorkerOptions options = Small();
  options.data = Write("y", [](int i) { return absl::StrCat(i); });
  ExpectError(RegressionWorker(options).LoadDataShard(0, 1), kInvalidArgument,
              {"no column but the target"});
  for (const double share : {0.0, 1.0}) {
    options = Small();
    options.test_share = share;
    ExpectError(RegressionWorker(options).LoadDataShard(0, 1), kInvalidArgument,
                {"60 rows", "leaves none"});
  }
  options = Small();
  options.target = "z";
  ExpectError(RegressionWorker(options).LoadDataShard(0, 1), kInvalidArgument,
              {"'z'"});
}

}  // namespace
}  // namespace miniray::ml
