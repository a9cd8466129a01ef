// Data sets in train functions: GetDatasetShard.

#include <cstdint>
#include <string>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "train/data/dataset.h"
#include "train/functions/torch_trainer.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kRows = 100;  // Of the values 0, 1, 2, ...

// Reads "batches" batches of data set "rows" (0: the epoch), from where the
// checkpoint ends, and reports what this rank has seen.
void ReadRows(Context& ctx) {
  DatasetShard shard = ctx.GetDatasetShard(ctx.config<std::string>("data"));
  if (const CheckpointFiles* files = ctx.GetCheckpoint()) {
    const absl::Status restored = shard.Restore(files->at("data"));
    if (!restored.ok()) throw DatasetError(restored);
  }
  int64_t left = ctx.config<int64_t>("batches");
  double count = 0;
  double sum = 0;
  double squares = 0;
  CheckpointFiles files;
  for (const Batch& batch : shard.IterBatches(
           {.batch_size = 4, .shuffle_buffer = 16, .tail = Tail::kUneven})) {
    const at::Tensor x = batch["x"].to(at::kDouble);
    count += static_cast<double>(batch.size());
    sum += x.sum().item<double>();
    squares += x.square().sum().item<double>();
    if (--left != 0) continue;
    files["data"] = shard.State();
    break;
  }
  ctx.Report({{"count", count}, {"sum", sum}, {"squares", squares}},
             std::move(files));
}
MINIRAY_TRAIN_FUNC(ReadRows);

class DatasetTrainingTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {4}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  TorchTrainerOptions Options(int num_workers, int batches) {
    TorchTrainerOptions options;
    options.config = {{"data", "rows"}, {"batches", batches}};
    options.scaling.num_workers = num_workers;
    options.run.name = "run";
    options.run.storage_path = temp_.path();
    options.cluster = *cluster_;
    const absl::StatusOr<Dataset> rows = Dataset::FromTensors(
        {{"x", at::arange(kRows, at::kFloat)}}, {.rows_per_block = 8});
    EXPECT_THAT(rows, IsOk());
    options.datasets = {{"rows", *rows}};
    return options;
  }

  Result Fit(TorchTrainerOptions options) {
    TorchTrainer trainer(ReadRows, std::move(options));
    EXPECT_THAT(trainer.Fit(), IsOk());
    return trainer.last_result();
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};

TestCluster* DatasetTrainingTest::nodes_ = nullptr;
Cluster* DatasetTrainingTest::cluster_ = nullptr;

// Over all ranks, in all reports.
double Total(const Result& result, const std::string& metric) {
  double total = 0;
  for (const EpochResult& epoch : result.history) {
    for (const Metrics& rank : epoch.per_worker) total += rank.at(metric);
  }
  return total;
}

void ExpectEachRowOnce(const Result& result) {
  EXPECT_EQ(Total(result, "count"), kRows);
  EXPECT_EQ(Total(result, "sum"), 99 * 100 / 2);
  EXPECT_EQ(Total(result, "squares"), 99 * 100 * 199 / 6);
}

TEST_F(DatasetTrainingTest, EachRowComesOnceOverTheRanks) {
  const Result result = Fit(Options(3, 0));
  ExpectEachRowOnce(result);
  ASSERT_THAT(result.history, SizeIs(1));
  for (const Metrics& rank : result.history[0].per_worker) {
    EXPECT_GE(rank.at("count"), kRows / 3);
  }
}

TEST_F(DatasetTrainingTest, WhatIsLeftIsDealtAnewToAnotherNumberOfRanks) {
  EXPECT_EQ(Total(Fit(Options(2, 3)), "count"), 2 * 3 * 4);
  const Result result = Fit(Options(3, 0));
  ASSERT_THAT(result.history, SizeIs(2));
  ExpectEachRowOnce(result);
}

TEST_F(DatasetTrainingTest, FilesAreReadWhereTheRanksAre) {
  std::string text = "x\n";
  for (int i = 0; i < kRows; ++i) absl::StrAppend(&text, i, "\n");
  ASSERT_THAT(WriteFileAtomically(temp_ / "rows.csv", text), IsOk());
  TorchTrainerOptions options = Options(2, 0);
  const absl::StatusOr<Dataset> rows = Dataset::FromCsv(
      {temp_ / "rows.csv"}, {.columns = {{"x", {"x"}}}, .block_bytes = 32});
  ASSERT_THAT(rows, IsOk());
  options.datasets["files"] = *rows;
  options.config.Set("data", "files");
  ExpectEachRowOnce(Fit(std::move(options)));
}

TEST_F(DatasetTrainingTest, LocalModeReadsEverything) {
  TorchTrainerOptions options = Options(0, 0);
  options.cluster.reset();
  ExpectEachRowOnce(Fit(std::move(options)));
}

TEST_F(DatasetTrainingTest, ANameThatIsUnknownIsTold) {
  TorchTrainerOptions options = Options(2, 0);
  options.config.Set("data", "row");
  TorchTrainer trainer(ReadRows, options);
  EXPECT_THAT(std::string(trainer.Fit().status().message()),
              AllOf(HasSubstr("no data set 'row'"), HasSubstr("{rows}"),
                    HasSubstr("TorchTrainerOptions::datasets")));
}

TEST_F(DatasetTrainingTest, ADataSetThatWasNotMadeIsTold) {
  for (const int num_workers : {0, 2}) {
    TorchTrainerOptions options = Options(num_workers, 0);
    options.datasets["rows"] = Dataset();
    TorchTrainer trainer(ReadRows, options);
    EXPECT_THAT(std::string(trainer.Fit().status().message()),
                HasSubstr("not made"));
  }
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
