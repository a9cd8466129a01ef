// Training with real worker processes: values, schedule, hooks.

#include "train/data_parallel_trainer.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/quadratic_worker.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataParallelTrainerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {8}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  static TrainerOptions TwoWorkers(int sync_interval = 1) {
    return {
        .num_workers = 2, .cluster = *cluster_, .sync_interval = sync_interval};
  }

  // Epochs in which, or after which, a synchronisation took place.
  static std::vector<int> Synced(const Result& result) {
    std::vector<int> epochs;
    for (const EpochResult& epoch : result.history) {
      if (epoch.synced) epochs.push_back(epoch.epoch);
    }
    return epochs;
  }

  static std::vector<double> Weights(QuadraticTrainer& trainer) {
    std::vector<double> values;
    for (const auto& worker : trainer.workers()) {
      auto weights = worker.Call<&QuadraticWorker::GetWeights>().Get();
      EXPECT_TRUE(weights.ok()) << weights.status();
      values.push_back(weights->at(0).second.item<float>());
    }
    return values;
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
};
TestCluster* DataParallelTrainerTest::nodes_;
Cluster* DataParallelTrainerTest::cluster_;

// Averaging after every step equals gradient descent of one process on the mean
// of the losses: x <- x - lr (x - mean of the targets). The numbers are exact.
TEST_F(DataParallelTrainerTest, GoldenRunEqualsOneProcessOnAllData) {
  QuadraticTrainer trainer(TwoWorkers(), {.targets = {4, 8}});
  const auto result = trainer.Train({.epochs = 5});
  ASSERT_TRUE(result.ok()) << result.status();
  double x = 0;
  for (const EpochResult& epoch : result->history) {
    // Before they are averaged, the workers stand at x - lr (x - target).
    EXPECT_EQ(epoch.per_worker[0].at("x"), x - 0.5 * (x - 4));
    EXPECT_EQ(epoch.per_worker[1].at("x"), x - 0.5 * (x - 8));
    x -= 0.5 * (x - 6);
    EXPECT_EQ(epoch.metrics.at("x"), x);
    EXPECT_TRUE(epoch.synced);
  }
  EXPECT_EQ(x, 6 - 6.0 / 32);
  EXPECT_THAT(Weights(trainer), ElementsAre(x, x));
  EXPECT_EQ(trainer.PullWeights()->at(0).second.item<float>(), x);
}

TEST_F(DataParallelTrainerTest, BetweenSynchronisationsWorkersGoTheirOwnWay) {
  QuadraticTrainer trainer(TwoWorkers(2), {.targets = {4, 8}});
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_TRUE(result.ok()) << result.status();
  // Alone: 0 -> 2 -> 3 and 0 -> 4 -> 6; mean 4.5; then 4.25 and 6.25, mean
  // 5.25.
  const auto& history = result->history;
  EXPECT_EQ(history[1].per_worker[0].at("x"), 3);
  EXPECT_EQ(history[1].per_worker[1].at("x"), 6);
  EXPECT_EQ(history[2].per_worker[0].at("x"), 4.25);
  EXPECT_EQ(history[2].per_worker[1].at("x"), 6.25);
  EXPECT_THAT(Weights(trainer), ElementsAre(5.25, 5.25));
  EXPECT_THAT(Synced(*result), ElementsAre(1, 2));
}

TEST_F(DataParallelTrainerTest, HooksRunInOrder) {
  QuadraticTrainer trainer(TwoWorkers(2), {});
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(
      trainer.events,
      ElementsAre("train start", "epoch start 0", "epoch end 0",
                  "epoch start 1", "sync 1", "epoch end 1", "epoch start 2",
                  "sync 2", "epoch end 2", "train end"));
  ASSERT_EQ(result->history.size(), 3);
  EXPECT_FALSE(result->history[0].synced);
  EXPECT_EQ(result->history[1].sync.version, 1);
  EXPECT_EQ(result->history[2].sync.version, 2);
  EXPECT_GT(result->history[1].sync.bytes, 0);
  EXPECT_GT(result->history[1].seconds, 0);
  EXPECT_GE(result->seconds, result->history[1].seconds);
  EXPECT_EQ(result->metrics(), result->history[2].metrics);
}

TEST_F(DataParallelTrainerTest, SynchronisesEveryKEpochsAndAtTheEndOnce) {
  const struct {
    int interval, epochs;
    std::vector<int> synced;
  } cases[] = {{1, 3, {0, 1, 2}},
               {2, 4, {1, 3}},
               {3, 4, {2, 3}},
               {10, 2, {1}},
               {1, 0, {}}};
  for (const auto& c : cases) {
    QuadraticTrainer trainer(TwoWorkers(c.interval), {});
    const auto result = trainer.Train({.epochs = c.epochs});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Synced(*result), c.synced) << c.interval << " " << c.epochs;
    EXPECT_EQ(trainer.GetSyncStats()->num_syncs, c.synced.size());
  }
}

TEST_F(DataParallelTrainerTest, AStopIsALastEpoch) {
  QuadraticTrainer trainer(TwoWorkers(10), {});
  trainer.stop_after = 1;
  const auto result = trainer.Train({.epochs = 100});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Synced(*result), ElementsAre(1));
  EXPECT_THAT(
      trainer.events,
      ElementsAre("train start", "epoch start 0", "epoch end 0",
                  "epoch start 1", "epoch end 1", "sync 1", "train end"));
}

TEST_F(DataParallelTrainerTest, MetricsAreWeighedBySamplesOfTheShards) {
  // 11 samples and 2 shards: 6 and 5.
  QuadraticTrainer trainer(TwoWorkers(), {});
  const auto result = trainer.Train({.epochs = 1, .config = {{"samples", 11}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->metrics().at("samples"), 11);
  EXPECT_EQ(result->metrics().at("x"), (6 * 2 + 5 * 4) / 11.0);
  EXPECT_EQ(result->history[0].per_worker[1].at("samples"), 5);
  // From 0, half of the way to 4 and to 8.
  EXPECT_EQ(result->history[0].min,
            (Metrics{{"epoch", 0}, {"samples", 5}, {"x", 2}}));
  EXPECT_EQ(result->history[0].max,
            (Metrics{{"epoch", 0}, {"samples", 6}, {"x", 4}}));
}

// Worker 0 takes 0.3 s, worker 1 next to nothing: it waits 0.3 s, which is 0.15
// on average over both.
TEST_F(DataParallelTrainerTest, TimingTellsWhoWaitsForTheSlowest) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  const auto result =
      trainer.Train({.epochs = 2, .config = {{"epoch_seconds", 0.3}}});
  ASSERT_TRUE(result.ok()) << result.status();
  for (const EpochResult& epoch : result->history) {
    EXPECT_GE(epoch.timing.compute, 0.3);
    EXPECT_GT(epoch.timing.wait, 0.05);
    EXPECT_LE(epoch.timing.wait, epoch.timing.compute / 2);
    EXPECT_GT(epoch.timing.sync, 0);
    EXPECT_LE(epoch.timing.compute + epoch.timing.sync, epoch.seconds);
  }
  EXPECT_GE(result->timing().compute, 0.6);
  EXPECT_LE(result->timing().compute + result->timing().sync, result->seconds);
}

TEST_F(DataParallelTrainerTest, TimingOfASyncAfterAStopIsTheLastEpochs) {
  QuadraticTrainer trainer(TwoWorkers(10), {});
  trainer.stop_after = 1;
  const auto result = trainer.Train({.epochs = 100});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->history[0].timing.sync, 0);
  EXPECT_GT(result->history[1].timing.sync, 0);
}

TEST_F(DataParallelTrainerTest, ConfigReachesCreateWorkerAndLoadDataShard) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  const auto result =
      trainer.Train({.epochs = 1, .config = {{"lr", 0.25}, {"samples", 20}}});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(trainer.configs.size(), 2);
  EXPECT_EQ(*trainer.configs[1].GetDouble("lr", 0), 0.25);
  EXPECT_EQ(result->history[0].per_worker[0].at("x"), 1);  // 0.25 * 4
  EXPECT_EQ(result->metrics().at("samples"), 20);
}

TEST_F(DataParallelTrainerTest, ShardsAreCutAsTheConfigSays) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  const auto result = trainer.Train(
      {.epochs = 1, .config = {{"samples", 5}, {"sharding", "strided"}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(*trainer.workers()[0].Call<&QuadraticWorker::Items>().Get(),
              ElementsAre(0, 2, 4));
  EXPECT_THAT(*trainer.workers()[1].Call<&QuadraticWorker::Items>().Get(),
              ElementsAre(1, 3));
}

TEST_F(DataParallelTrainerTest, AShardThatCannotBeLoadedNamesTheWorker) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  const auto result = trainer.Train({.epochs = 1, .config = {{"samples", 1}}});
  EXPECT_THAT(
      std::string(result.status().message()),
      AllOf(HasSubstr("worker "), HasSubstr("'worker-"),
            HasSubstr("LoadDataShard"), HasSubstr("2 shards of only 1 items")));
  EXPECT_TRUE(trainer.events.empty());
}

TEST_F(DataParallelTrainerTest, MomentumTakesItsOptions) {
  TrainerOptions options = TwoWorkers();
  options.sync_strategy = "momentum";
  options.strategy_options = {{"momentum", 0.5}};
  QuadraticTrainer trainer(options, {.targets = {4, 8}});
  ASSERT_TRUE(trainer.Train({.epochs = 2}).ok());
  // Mean 3 initialises; then (3.5 + 5.5) / 2 = 4.5, and 0.5 * 3 + 0.5 * 4.5.
  EXPECT_THAT(Weights(trainer), ElementsAre(3.75, 3.75));
  EXPECT_EQ(trainer.GetSyncStats()->strategy, "momentum (momentum=0.5)");
}

// Server optimizers step from where the workers started, not from their first
// mean.
TEST_F(DataParallelTrainerTest, StrategiesThatNeedAStartGetIt) {
  TrainerOptions options = TwoWorkers();
  options.sync_strategy = "fedavgm";
  options.strategy_options = {{"lr", 0.5}};
  QuadraticTrainer trainer(options, {.targets = {4, 8}});
  ASSERT_TRUE(trainer.Train({.epochs = 1}).ok());
  // From 0, half of the way to the mean of 2 and 4.
  EXPECT_THAT(Weights(trainer), ElementsAre(1.5, 1.5));
  EXPECT_EQ(trainer.GetSyncStats()->version, 2);
}

TEST_F(DataParallelTrainerTest, TooFewWorkersForTheStrategyStartNone) {
  TrainerOptions options = TwoWorkers();
  options.sync_strategy = "krum";
  QuadraticTrainer trainer(options, {});
  EXPECT_THAT(std::string(trainer.Train({.epochs = 1}).status().message()),
              AllOf(HasSubstr("sync_strategy: "),
                    HasSubstr("2 * num_malicious + 3 workers")));
  EXPECT_TRUE(trainer.configs.empty());
}

TEST_F(DataParallelTrainerTest, WorkersWithoutFiniteWeightsMayBeDropped) {
  TrainerOptions options = TwoWorkers();
  options.server_options.non_finite = ps::NonFinitePolicy::kDropWorker;
  QuadraticTrainer trainer(options, {.targets = {4, INFINITY}});
  ASSERT_TRUE(trainer.Train({.epochs = 1}).ok());
  EXPECT_THAT(Weights(trainer), ElementsAre(2, 2));
  EXPECT_EQ(trainer.GetSyncStats()->contributions_refused, 1);
}

TEST_F(DataParallelTrainerTest, WorkerWeightsHoldFromBeforeTrain) {
  TrainerOptions options = TwoWorkers();
  options.sync_strategy = "weighted";
  QuadraticTrainer trainer(options, {.targets = {4, 8}});
  ASSERT_TRUE(trainer.SetWorkerWeight(0, 3000).ok());
  ASSERT_TRUE(trainer.SetWorkerWeight(1, 1000).ok());
  ASSERT_TRUE(trainer.Train({.epochs = 1}).ok());
  // (3 * 2 + 1 * 4) / 4
  EXPECT_THAT(Weights(trainer), ElementsAre(2.5, 2.5));
  EXPECT_TRUE(trainer.SetWorkerWeight(1, 0).ok());
  EXPECT_EQ(trainer.SetWorkerWeight(2, 1).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(trainer.SetWorkerWeight(0, -1).code(),
            absl::StatusCode::kInvalidArgument);
}

// Neither a plain mean nor an epoch that is trained for nothing.
TEST_F(DataParallelTrainerTest, WorkersWithoutAWeightAreAnErrorAtTheStart) {
  TrainerOptions options = TwoWorkers();
  options.sync_strategy = "weighted";
  QuadraticTrainer trainer(options, {});
  const absl::Status status = trainer.Train({.epochs = 2}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("epoch 1/2: strategy weighted"), HasSubstr("worker 0 ("),
            HasSubstr("NumSamples"), HasSubstr("SetWorkerWeight")));
}

TEST_F(DataParallelTrainerTest, WorkerWeightsWithoutEffectAreAnError) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  const absl::Status status = trainer.SetWorkerWeight(0, 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'weighted' has"));
}

TEST_F(DataParallelTrainerTest, SyncStatsBelongToTheRun) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  EXPECT_EQ(trainer.GetSyncStats().status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(trainer.Train({.epochs = 2}).ok());
  const auto stats = trainer.GetSyncStats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->version, 2);
  EXPECT_EQ(stats->num_syncs, 2);
  EXPECT_EQ(stats->strategy, "average");
  EXPECT_TRUE(stats->initialized);
  trainer.Shutdown();
  EXPECT_EQ(trainer.PullWeights().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// A trainer of one's own: the median of what the workers report, and a
// synchronisation whenever it pleases.
class OwnEpochTrainer : public QuadraticTrainer {
 public:
  using QuadraticTrainer::QuadraticTrainer;
  bool train_after_sync = false;

 protected:
  absl::StatusOr<EpochResult> TrainEpoch(int epoch) override {
    MR_ASSIGN_OR_RETURN(std::vector<Metrics> per_worker, RunWorkers(epoch));
    std::vector<double> values;
    for (const Metrics& metrics : per_worker) values.push_back(metrics.at("x"));
    std::sort(values.begin(), values.end());
    if (epoch == 0) {
      MR_RETURN_IF_ERROR(SyncWeights().status());
      if (train_after_sync) MR_RETURN_IF_ERROR(RunWorkers(epoch).status());
    }
    return EpochResult{.metrics = {{"median", values[values.size() / 2]}}};
  }
};

TEST_F(DataParallelTrainerTest, AnEpochOfOnesOwnReplacesTheAverage) {
  TrainerOptions options = TwoWorkers(2);
  options.num_workers = 3;
  OwnEpochTrainer trainer(options, {.targets = {4, 8, 100}});
  const auto result = trainer.Train({.epochs = 2});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->history[0].metrics, (Metrics{{"median", 4}}));
  EXPECT_TRUE(result->history[0].synced) << "synchronised by hand";
  EXPECT_TRUE(result->history[1].synced) << "by the schedule";
  EXPECT_EQ(trainer.GetSyncStats()->num_syncs, 2);
}

TEST_F(DataParallelTrainerTest, AfterASyncByHandTheScheduleAddsNone) {
  for (const bool train_after_sync : {false, true}) {
    OwnEpochTrainer trainer(TwoWorkers(1), {});
    trainer.train_after_sync = train_after_sync;
    const auto result = trainer.Train({.epochs = 1});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(trainer.GetSyncStats()->num_syncs, train_after_sync ? 2 : 1);
    EXPECT_THAT(Synced(*result), ElementsAre(0));
  }
}

TEST_F(DataParallelTrainerTest, TrainsAnewAfterShutdownOnly) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  ASSERT_TRUE(trainer.Train({.epochs = 1}).ok());
  EXPECT_EQ(trainer.workers().size(), 2);
  const auto again = trainer.Train({.epochs = 1});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition);
  trainer.Shutdown();
  EXPECT_TRUE(trainer.workers().empty());
  const auto anew = trainer.Train({.epochs = 1});
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_THAT(Weights(trainer), ElementsAre(3, 3));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
