// Which data workers train on and are evaluated on, and what they have to tell
// of it that is no number.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status_macros.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"
#include "train/data_parallel_trainer.h"
#include "train/sharding.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Has ten items to train on, of which 0, 3, 6 and 9 are of class 0; and two
// test sets: items 0 to 9, or in "small" 0 to 6.
class DealtWorker {
 public:
  absl::Status LoadDataShard(int shard, int num_shards, const Config& config) {
    MR_ASSIGN_OR_RETURN(Sharding sharding, ShardingFromConfig(config));
    sharding.labels = labels_;
    sharding.shard_of = [](int64_t item, int) { return item < 9 ? 0 : 1; };
    MR_ASSIGN_OR_RETURN(items_, ShardItems(10, shard, num_shards, sharding));
    return absl::OkStatus();
  }

  Metrics TrainEpoch(int epoch) {
    epoch_ = epoch;
    return {{"samples", static_cast<double>(items_.size())}};
  }

  Notes GetNotes() const {
    return {{"items", absl::StrJoin(items_, " ")},
            {"epoch", absl::StrCat("no. ", epoch_)}};
  }

  // The mean of the items.
  absl::StatusOr<Metrics> EvaluateShard(int shard, int num_shards,
                                        const Config& config) {
    MR_ASSIGN_OR_RETURN(const std::string data_set,
                        config.GetString("data_set", "all"));
    MR_ASSIGN_OR_RETURN(
        const ShardRange range,
        ContiguousShard(data_set == "small" ? 7 : 10, shard, num_shards));
    return Metrics{{"mean", (range.begin + range.end - 1) / 2.0},
                   {"samples", static_cast<double>(range.size())}};
  }

  NamedTensors GetWeights() const { return {{"x", ps::Floats({1})}}; }
  void SetWeights(const NamedTensors&) {}

 private:
  const std::vector<int64_t> labels_ = {0, 1, 1, 0, 1, 1, 0, 1, 1, 0};
  std::vector<int64_t> items_;
  int epoch_ = -1;
};
MINIRAY_ACTOR(DealtWorker, Constructor<>, &DealtWorker::LoadDataShard,
              &DealtWorker::TrainEpoch, &DealtWorker::GetNotes,
              &DealtWorker::EvaluateShard, &DealtWorker::GetWeights,
              &DealtWorker::SetWeights);

class DealtTrainer : public DataParallelTrainer<DealtWorker> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

 protected:
  absl::StatusOr<ActorHandle<DealtWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    return cluster().CreateActor<DealtWorker>(WorkerOptions(worker_id));
  }
};

// It takes its shard without a config.
class SimpleWorker {
 public:
  void LoadDataShard(int shard, int num_shards) {}
  Metrics TrainEpoch(int epoch) { return {{"loss", 1}}; }
  NamedTensors GetWeights() const { return {{"x", ps::Floats({1})}}; }
  void SetWeights(const NamedTensors&) {}
};
MINIRAY_ACTOR(SimpleWorker, Constructor<>, &SimpleWorker::LoadDataShard,
              &SimpleWorker::TrainEpoch, &SimpleWorker::GetWeights,
              &SimpleWorker::SetWeights);

class SimpleTrainer : public DataParallelTrainer<SimpleWorker> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

 protected:
  absl::StatusOr<ActorHandle<SimpleWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    return cluster().CreateActor<SimpleWorker>(WorkerOptions(worker_id));
  }
};

class TrainerDataTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {8}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  static TrainerOptions TwoWorkers() {
    return {.num_workers = 2, .cluster = *cluster_};
  }

  // The items of each worker.
  static std::vector<std::string> Items(TrainerOptions options,
                                        const Config& config = {}) {
    DealtTrainer trainer(std::move(options));
    const auto result = trainer.Train({.epochs = 1, .config = config});
    EXPECT_THAT(result, IsOk());
    std::vector<std::string> items;
    if (!result.ok()) return items;
    for (const Notes& notes : result->history[0].notes) {
      items.push_back(notes.at("items"));
    }
    return items;
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
};
TestCluster* TrainerDataTest::nodes_;
Cluster* TrainerDataTest::cluster_;

TEST_F(TrainerDataTest, TheOptionsSayHowDataAreDealt) {
  TrainerOptions options = TwoWorkers();
  EXPECT_THAT(Items(options), ElementsAre("0 1 2 3 4", "5 6 7 8 9"));
  options.sharding = ShardMethod::kStrided;
  EXPECT_THAT(Items(options), ElementsAre("0 2 4 6 8", "1 3 5 7 9"));
  options.sharding = ShardMethod::kByClass;
  EXPECT_THAT(Items(options), ElementsAre("1 2 4 5 7 8", "0 3 6 9"));
  options.sharding = ShardMethod::kFunction;
  EXPECT_THAT(Items(options), ElementsAre("0 1 2 3 4 5 6 7 8", "9"));

  options.sharding = ShardMethod::kShuffled;
  options.sharding_seed = 7;
  std::vector<std::string> expected;
  for (const int shard : {0, 1}) {
    const auto items =
        ShardItems(10, shard, 2, {.method = ShardMethod::kShuffled, .seed = 7});
    ASSERT_THAT(items, IsOk());
    expected.push_back(absl::StrJoin(*items, " "));
  }
  EXPECT_EQ(Items(options), expected);
  options.sharding_seed = 8;
  EXPECT_NE(Items(options), expected);

  // What the config of the run says comes first.
  EXPECT_THAT(Items(options, {{"sharding", "strided"}}),
              ElementsAre("0 2 4 6 8", "1 3 5 7 9"));
  EXPECT_EQ(Items(options, {{"sharding_seed", 7}}), expected);
}

TEST_F(TrainerDataTest, AShardingThatWorkersWouldNotSeeIsRefused) {
  TrainerOptions options = TwoWorkers();
  options.sharding = ShardMethod::kStrided;
  SimpleTrainer trainer(options);
  EXPECT_THAT(trainer.Train({.epochs = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sharding is set, and the worker class has no "
                                 "`LoadDataShard(int shard_id, int "
                                 "num_shards, const train::Config& config)`")));
}

TEST_F(TrainerDataTest, EvaluatesADataSetByItsName) {
  DealtTrainer trainer(TwoWorkers());
  ASSERT_THAT(trainer.Train({.epochs = 1}), IsOk());
  auto metrics = trainer.Evaluate();
  ASSERT_THAT(metrics, IsOk());
  EXPECT_EQ(*metrics, (Metrics{{"mean", 4.5}, {"samples", 10}}));
  metrics = trainer.Evaluate("small");  // Shards of 4 and 3.
  ASSERT_THAT(metrics, IsOk());
  EXPECT_EQ(*metrics, (Metrics{{"mean", 3}, {"samples", 7}}));
  trainer.Shutdown();
  EXPECT_THAT(trainer.Evaluate("small"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(TrainerDataTest, NotesStandInTheHistoryByWorker) {
  DealtTrainer trainer(TwoWorkers());
  const auto result = trainer.Train({.epochs = 2});
  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->history.size(), 2u);
  const EpochResult& last = result->history[1];
  EXPECT_THAT(last.notes,
              ElementsAre(Notes{{"epoch", "no. 1"}, {"items", "0 1 2 3 4"}},
                          Notes{{"epoch", "no. 1"}, {"items", "5 6 7 8 9"}}));
  EXPECT_EQ(result->history[0].notes[1].at("epoch"), "no. 0");
  EXPECT_THAT(last.ToJson(), HasSubstr(R"("notes":[{"epoch":"no. 1",)"));
  const auto again = EpochResult::FromJson(last.ToJson());
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->notes, last.notes);

  SimpleTrainer simple(TwoWorkers());
  const auto without = simple.Train({.epochs = 1});
  ASSERT_THAT(without, IsOk());
  EXPECT_THAT(without->history[0].notes, IsEmpty());
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
