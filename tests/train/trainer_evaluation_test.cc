// With real workers: evaluation, synchronisation within an epoch, weights from
// shard sizes, progress. One process on all data is the reference.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/event_file_reader.h"
#include "tests/train/points_worker.h"
#include "tests/train/quadratic_worker.h"

namespace miniray::train {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using Json = nlohmann::json;

class TrainerEvaluationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {8}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  static TrainerOptions Workers(int num_workers) {
    return {.num_workers = num_workers, .cluster = *cluster_};
  }

  // Epochs whose metrics have an evaluation.
  static std::vector<int> Evaluated(const Result& result) {
    std::vector<int> epochs;
    for (const EpochResult& epoch : result.history) {
      if (epoch.metrics.count("eval/loss") > 0) epochs.push_back(epoch.epoch);
    }
    return epochs;
  }

  // The greatest difference between two models.
  static double Difference(const NamedTensors& a, const NamedTensors& b) {
    EXPECT_EQ(a.size(), b.size());
    double most = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const at::Tensor difference = (a[i].second - b[i].second).abs().max();
      most = std::max(most, difference.item<double>());
    }
    return most;
  }

  // A model after so many epochs of one process with whole batches.
  static NamedTensors OneProcess(PointsOptions options, int epochs) {
    PointsWorker worker(std::move(options));
    EXPECT_THAT(worker.LoadDataShard(0, 1), IsOk());
    for (int epoch = 0; epoch < epochs; ++epoch) {
      EXPECT_THAT(worker.TrainEpoch(epoch), IsOk());
    }
    return worker.GetWeights();
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
};
TestCluster* TrainerEvaluationTest::nodes_;
Cluster* TrainerEvaluationTest::cluster_;

// 101 test points over 3 workers: 33, 34 and 34. Accuracy to the last bit, loss
// but for the rounding of three sums instead of one.
TEST_F(TrainerEvaluationTest, EqualsOneProcess) {
  TrainerOptions options = Workers(3);
  options.evaluate_every = 1;
  PointsTrainer trainer(options);
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_THAT(result, IsOk());
  PointsWorker one(PointsOptions{});
  ASSERT_THAT(one.SetWeights(*trainer.PullWeights()), IsOk());
  const Metrics expected = *one.EvaluateShard(0, 1);
  const Metrics& last = result->history.back().metrics;
  EXPECT_EQ(last.at("eval/accuracy"), expected.at("accuracy"));
  EXPECT_NEAR(last.at("eval/loss"), expected.at("loss"),
              1e-14 * expected.at("loss"));
  EXPECT_EQ(last.at("eval/samples"), 101);
  EXPECT_GT(last.at("eval/seconds"), 0);
  // It learns, so this is not the evaluation of some other model.
  EXPECT_LT(last.at("eval/loss"),
            result->history.front().metrics.at("eval/loss"));
  // And asked for by hand, after training.
  const auto again = trainer.Evaluate();
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->at("accuracy"), last.at("eval/accuracy"));
  EXPECT_EQ(again->at("loss"), last.at("eval/loss"));
  trainer.Shutdown();
  EXPECT_EQ(trainer.Evaluate().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TrainerEvaluationTest, AWorkerMayHaveNoTestData) {
  TrainerOptions options = Workers(3);
  options.evaluate_every = 1;
  PointsTrainer trainer(options, {.test_points = 2});
  const auto result = trainer.Train({.epochs = 1});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->metrics().at("eval/samples"), 2);
  PointsTrainer none(options, {.test_points = 0});
  EXPECT_THAT(none.Train({.epochs = 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("epoch 1/1: evaluation: no worker has a "
                                 "sample")));
}

// It is one model that is evaluated: there is a synchronisation before it.
TEST_F(TrainerEvaluationTest, ComesEveryKEpochsAndAfterTheLast) {
  TrainerOptions options = Workers(2);
  options.sync_interval = 3;
  options.evaluate_every = 2;
  PointsTrainer trainer(options);
  const auto result = trainer.Train({.epochs = 5});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(Evaluated(*result), ElementsAre(1, 3, 4));
  std::vector<int> synced;
  for (const EpochResult& epoch : result->history) {
    if (epoch.synced) synced.push_back(epoch.epoch);
  }
  EXPECT_THAT(synced, ElementsAre(1, 2, 3, 4));
}

TEST_F(TrainerEvaluationTest, AStopIsFollowedByOne) {
  TrainerOptions options = Workers(2);
  options.evaluate_every = 10;
  PointsTrainer trainer(options);
  trainer.stop_after = 1;
  const auto result = trainer.Train({.epochs = 20});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(Evaluated(*result), ElementsAre(1));
}

TEST_F(TrainerEvaluationTest, StandsInTheRunFolder) {
  const TempFolder temp;
  TrainerOptions options = Workers(2);
  options.evaluate_every = 2;
  options.storage_path = temp.path();
  options.name = "run";
  PointsTrainer trainer(options);
  const auto result = trainer.Train({.epochs = 2});
  ASSERT_THAT(result, IsOk());
  const std::vector<std::string> lines =
      absl::StrSplit(*ReadFile(result->path + "/history.jsonl"), '\n');
  EXPECT_FALSE(Json::parse(lines[0])["metrics"].contains("eval/accuracy"));
  EXPECT_EQ(Json::parse(lines[1])["metrics"]["eval/accuracy"].get<double>(),
            result->metrics().at("eval/accuracy"));
  int events = 0;
  for (const auto& entry : std::filesystem::directory_iterator(result->path)) {
    if (!absl::StrContains(entry.path().string(), "tfevents")) continue;
    for (const ReadEvent& event :
         ReadEvents(*ReadFile(entry.path().string()))) {
      if (event.scalars.count("eval/accuracy") == 0) continue;
      ++events;
      EXPECT_EQ(event.step, 1);
      EXPECT_EQ(event.scalars.at("eval/accuracy"),
                static_cast<float>(result->metrics().at("eval/accuracy")));
      EXPECT_THAT(event.scalars, Contains(Key("loss/mean")));
    }
  }
  EXPECT_EQ(events, 1);
}

// Plain SGD: the mean of two steps on half batches is the step on the whole
// one. Float64, so that all that is left is rounding.
TEST_F(TrainerEvaluationTest, SyncEveryStepEqualsOneProcessOnWholeBatches) {
  TrainerOptions options = Workers(2);
  options.sync_every = 1;
  PointsTrainer trainer(options, {.batch = 8});
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_THAT(result, IsOk());
  EXPECT_LE(Difference(*trainer.PullWeights(), OneProcess({.batch = 16}, 3)),
            1e-13);
  EXPECT_EQ(trainer.GetSyncStats()->num_syncs, 18);  // 3 epochs of 6 steps.
  const EpochResult& epoch = result->history[1];
  EXPECT_TRUE(epoch.synced);
  EXPECT_EQ(epoch.sync.version, 12);
  EXPECT_EQ(epoch.metrics.at("samples"), 96);
  EXPECT_EQ(epoch.per_worker[1].at("steps"), 6);
  EXPECT_GT(epoch.timing.sync, 0);
  EXPECT_GT(epoch.timing.compute, 0);
  EXPECT_LE(epoch.timing.sync + epoch.timing.compute, epoch.seconds);
}

// 6 and 9 steps, in pieces of 4: worker 0 has 4, 2, 0, worker 1 has 4, 4, 1.
TEST_F(TrainerEvaluationTest, SyncEveryFewStepsTrainsOnEverySampleOnce) {
  TrainerOptions options = Workers(2);
  options.sync_every = 4;
  PointsTrainer trainer(options, {.batch = 6, .shard_sizes = {36, 54}});
  const auto result = trainer.Train({.epochs = 2});
  ASSERT_THAT(result, IsOk());
  for (const EpochResult& epoch : result->history) {
    EXPECT_EQ(epoch.metrics.at("samples"), 90);
    EXPECT_EQ(epoch.per_worker[0].at("steps"), 6);
    EXPECT_EQ(epoch.per_worker[1].at("steps"), 9);
  }
  const ps::SyncStats stats = *trainer.GetSyncStats();
  EXPECT_EQ(stats.num_syncs, 6);
  // An epoch tells of all three of its synchronisations.
  EXPECT_EQ(result->history[0].sync.bytes + result->history[1].sync.bytes,
            stats.bytes_pulled + stats.bytes_pushed);
  EXPECT_EQ(result->history[1].sync.version, stats.version);
}

// One step each on all that a worker has: the mean weighted by NumSamples is
// the step on all data. The plain mean is not.
TEST_F(TrainerEvaluationTest, WeightedCountsWorkersByTheirSamples) {
  const PointsOptions points = {.batch = 96, .shard_sizes = {24, 72}};
  const NamedTensors whole = OneProcess({.batch = 96}, 3);
  TrainerOptions options = Workers(2);
  options.sync_strategy = "weighted";
  PointsTrainer weighted(options, points);
  ASSERT_THAT(weighted.Train({.epochs = 3}), IsOk());
  EXPECT_LE(Difference(*weighted.PullWeights(), whole), 1e-13);

  // What the user sets is what counts.
  PointsTrainer set(options, points);
  ASSERT_THAT(set.SetWorkerWeight(0, 1), IsOk());
  ASSERT_THAT(set.SetWorkerWeight(1, 1), IsOk());
  ASSERT_THAT(set.Train({.epochs = 3}), IsOk());
  EXPECT_GT(Difference(*set.PullWeights(), whole), 1e-3);
}

// Worker 0 stands before its third of six batches until it was seen there.
TEST_F(TrainerEvaluationTest, WorkersTellTheirProgressWhileTheyTrain) {
  PointsTrainer trainer(Workers(2), {.batch = 8, .pause_before = 2});
  std::vector<Progress> seen;
  std::thread watcher;
  trainer.at_train_start = [&] {
    watcher = std::thread([&] {
      EXPECT_TRUE(Eventually([&] {
        const auto progress = trainer.WorkerProgress();
        if (!progress.ok()) {
          ADD_FAILURE() << progress.status();
          return true;
        }
        seen = *progress;
        return seen[0].samples_done == 16 && seen[1].samples_done == 16;
      }));
      for (const auto& worker : trainer.workers()) {
        EXPECT_THAT(worker.Call<&PointsWorker::Proceed>().Get(), IsOk());
      }
    });
  };
  const auto result = trainer.Train({.epochs = 2});
  watcher.join();
  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(seen.size(), 2);
  EXPECT_EQ(seen[0].epoch, 0);
  EXPECT_EQ(seen[0].samples, 48);
  EXPECT_FALSE(seen[0].done);
  EXPECT_GT(seen[0].metrics.at("loss"), 0);
  EXPECT_TRUE((*trainer.WorkerProgress())[1].done);
}

TEST_F(TrainerEvaluationTest, OptionsThatWorkersCannotServeAreErrors) {
  TrainerOptions steps = Workers(2);
  steps.sync_every = 2;
  EXPECT_THAT(QuadraticTrainer(steps, {}).Train({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sync_every is set, and the worker class "
                                 "has no")));
  steps.sync_interval = 2;
  EXPECT_THAT(PointsTrainer(steps).Train({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sync_interval is 2")));
  TrainerOptions evaluates = Workers(2);
  evaluates.evaluate_every = 1;
  EXPECT_THAT(QuadraticTrainer(evaluates, {}).Train({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("evaluate_every is set, and the worker class "
                                 "has no")));
  evaluates.evaluate_every = -1;
  EXPECT_THAT(PointsTrainer(evaluates).Train({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("evaluate_every must be 1")));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
