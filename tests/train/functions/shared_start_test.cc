// What all ranks of a train function get alike, data sets and rank 0's files of
// the checkpoint: each node gets it once.

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "train/data/dataset.h"
#include "train/functions/torch_trainer.h"

namespace miniray::train {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr int kNodes = 2;
constexpr int kRanksOfNode = 2;
constexpr int64_t kMegabyte = 1 << 20;
constexpr int64_t kRows = 64;
// All that is not the rows and the model.
constexpr int64_t kRest = 10'000;

std::string Model() { return std::string(2 * kMegabyte, 'm'); }

// The inode of a store's object that is mapped into this process; 0: none is.
double MappedObject() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!absl::StrContains(line, "memfd:miniray-object")) continue;
    // Addresses, permissions, offset, device, inode, name.
    const std::vector<std::string> fields =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    double inode = 0;
    if (absl::SimpleAtod(fields.at(4), &inode)) return inode;
  }
  return 0;
}

// Reports a model of rank 0 and a file of each rank, and whether what it got is
// what was sent.
void ReadShared(Context& ctx) {
  int64_t rows = 0;
  double sum = 0;
  DatasetShard shard = ctx.GetDatasetShard("rows");
  for (const Batch& batch : shard.IterBatches({.tail = Tail::kUneven})) {
    rows += batch.size();
    sum += batch["x"].sum().item<double>();
  }
  const CheckpointFiles* from = ctx.GetCheckpoint();
  if (from != nullptr && (from->size() != 2 || from->at("model") != Model() ||
                          from->at("own") != absl::StrCat(ctx.rank()))) {
    throw std::runtime_error("not the files that were saved");
  }
  CheckpointFiles files = {{"own", absl::StrCat(ctx.rank())}};
  if (ctx.rank() == 0) files["model"] = Model();
  ctx.Report({{"rows", rows},
              {"sum", sum},
              {"restored", from != nullptr},
              {"node", ctx.node_rank()},
              {"mapped", MappedObject()},
              {"ranks_here", ctx.local_world_size()}},
             std::move(files));
  if (ctx.generation() < ctx.config<int>("failures") && ctx.rank() == 1) {
    throw std::runtime_error("loss went up");
  }
}
MINIRAY_TRAIN_FUNC(ReadShared);

class AtReport : public Callback {
 public:
  explicit AtReport(std::function<void()> call) : call_(std::move(call)) {}
  void OnEpochEnd(TrainContext& context, const EpochResult& result) override {
    call_();
  }

 private:
  const std::function<void()> call_;
};

class SharedStartTest : public ::testing::Test {
 protected:
  SharedStartTest()
      : nodes_({.node_cpus = std::vector<double>(kNodes, kRanksOfNode)}) {}

  TorchTrainerOptions Options() {
    TorchTrainerOptions options;
    options.config = {{"failures", 0}};
    options.scaling.num_workers = kNodes * kRanksOfNode;
    options.run.name = "run";
    options.run.storage_path = temp_.path();
    options.cluster = nodes_.Connect();
    // A megabyte.
    const absl::StatusOr<Dataset> rows =
        Dataset::FromTensors({{"x", at::ones({kRows, kMegabyte / kRows / 4})}},
                             {.rows_per_block = 8});
    EXPECT_THAT(rows, IsOk());
    options.datasets = {{"rows", *rows}};
    return options;
  }

  Result Fit(const TorchTrainerOptions& options) {
    TorchTrainer trainer(ReadShared, options);
    EXPECT_THAT(trainer.Fit(), IsOk());
    return trainer.last_result();
  }

  // From one node to another.
  int64_t Transfers() {
    int64_t transfers = 0;
    for (int i = 0; i < kNodes; ++i) {
      transfers += nodes_.daemon(i).object_stats().fetched;
    }
    return transfers;
  }
  void AwaitFreed() {
    for (int i = 0; i < kNodes; ++i) {
      EXPECT_TRUE(Eventually(
          [&] { return nodes_.daemon(i).object_stats().objects == 0; }));
    }
  }

  TempFolder temp_;
  TestCluster nodes_;
};

// One object of so many bytes, and what comes with them.
auto IsOneOf(int64_t bytes) {
  return AllOf(
      Field(&ObjectStore::Stats::objects, 1),
      Field(&ObjectStore::Stats::bytes, AllOf(Ge(bytes), Le(bytes + kRest))));
}

void ExpectAllRows(const EpochResult& epoch) {
  double rows = 0;
  double sum = 0;
  ASSERT_THAT(epoch.per_worker, SizeIs(kNodes * kRanksOfNode));
  for (const Metrics& rank : epoch.per_worker) {
    EXPECT_EQ(rank.at("ranks_here"), kRanksOfNode);
    rows += rank.at("rows");
    sum += rank.at("sum");
  }
  EXPECT_EQ(rows, kRows);
  EXPECT_EQ(sum, kMegabyte / 4);
}

TEST_F(SharedStartTest, EachNodeGetsItOnce) {
  std::vector<ObjectStore::Stats> stores;  // While the ranks wait in a report.
  TorchTrainerOptions options = Options();
  options.run.callbacks = {std::make_shared<AtReport>([&] {
    for (int i = 0; i < kNodes; ++i) {
      stores.push_back(nodes_.daemon(i).object_stats());
    }
  })};
  Result result = Fit(options);
  ASSERT_THAT(result.history, SizeIs(1));
  ExpectAllRows(result.history[0]);
  EXPECT_THAT(stores, AllOf(SizeIs(kNodes), Each(IsOneOf(kMegabyte))));
  EXPECT_EQ(Transfers(), kNodes - 1);
  // The rows lie in memory once for all ranks of a node.
  std::map<double, std::set<double>> mapped;  // By node.
  for (const Metrics& rank : result.history[0].per_worker) {
    mapped[rank.at("node")].insert(rank.at("mapped"));
  }
  EXPECT_THAT(mapped, AllOf(SizeIs(kNodes), Each(Pair(_, SizeIs(1)))));
  EXPECT_THAT(mapped, Each(Pair(_, Not(Contains(0)))));
  AwaitFreed();

  // With the checkpoint, from here on.
  stores.clear();
  result = Fit(options);
  ASSERT_THAT(result.history, SizeIs(2));
  ExpectAllRows(result.history[1]);
  EXPECT_EQ(result.history[1].min.at("restored"), 1);
  EXPECT_THAT(stores, AllOf(SizeIs(kNodes), Each(IsOneOf(3 * kMegabyte))));
  EXPECT_EQ(Transfers(), 2 * (kNodes - 1));
  AwaitFreed();
}

TEST_F(SharedStartTest, AGenerationAfterAFailureGetsItAnew) {
  TorchTrainerOptions options = Options();
  options.config.Set("failures", 1);
  options.run.failure.max_failures = 1;
  const Result result = Fit(options);
  ASSERT_THAT(result.history, SizeIs(2));
  ExpectAllRows(result.history[1]);
  EXPECT_EQ(result.history[1].min.at("restored"), 1);
  EXPECT_EQ(Transfers(), 2 * (kNodes - 1));
  AwaitFreed();
}

TEST_F(SharedStartTest, WhatHasNoRoomIsTold) {
  TestCluster small(
      {.node_cpus = {2}, .configure_node = [](WorkerDaemon::Options* options) {
         options->object_store_bytes = kMegabyte / 2;
       }});
  TorchTrainerOptions options = Options();
  options.cluster = small.Connect();
  options.scaling.num_workers = 2;
  TorchTrainer trainer(ReadShared, options);
  EXPECT_THAT(trainer.Fit(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("the data sets and the checkpoint"),
                             HasSubstr("put a value"))));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
