// What goes wrong in training: wrong options, workers that fail, workers that
// find no place; and that nothing is left behind.

#include <signal.h>

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/quadratic_worker.h"
#include "train/data_parallel_trainer.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TrainerFailureTest : public ::testing::Test {
 protected:
  TrainerFailureTest()
      : nodes_({.node_cpus = {4},
                .head = {.max_restart_delay = absl::Milliseconds(100)}}),
        cluster_(nodes_.Connect()) {}

  TrainerOptions TwoWorkers() {
    return {.num_workers = 2, .cluster = cluster_};
  }

  // Actors that live or wait for a place.
  int NumActors() {
    int count = 0;
    const v1::GetClusterStateResponse state = nodes_.head().GetState();
    for (const v1::ActorInfo& actor : state.actors()) {
      if (actor.state() != v1::ACTOR_STATE_DEAD) ++count;
    }
    return count;
  }

  int NumActorsEver() { return nodes_.head().GetState().actors_size(); }

  absl::Status TrainWith(const TrainerOptions& options, const RunOptions& run) {
    QuadraticTrainer trainer(options, {});
    const absl::Status status = trainer.Train(run).status();
    EXPECT_THAT(trainer.events, IsEmpty());
    return status;
  }

  TestCluster nodes_;
  Cluster cluster_;
};

TEST_F(TrainerFailureTest, OptionsThatCannotBeCreateNothing) {
  TrainerOptions options = TwoWorkers();
  auto expect = [&](const std::string& text, RunOptions run = {}) {
    const absl::Status status = TrainWith(options, run);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    options = TwoWorkers();
  };
  options.num_workers = 0;
  expect("num_workers must be at least 1, got 0");
  options.num_workers = -3;
  expect("num_workers must be at least 1, got -3");
  options.sync_interval = 0;
  expect("sync_interval must be at least 1 epoch, got 0");
  options.start_timeout = absl::ZeroDuration();
  expect("start_timeout must be above 0");
  expect("epochs must not be negative, got -1", {.epochs = -1});
  options.sync_strategy = "mean";
  expect("sync_strategy: no synchronisation strategy 'mean'");
  options.sync_strategy = "momentum";
  options.strategy_options = {{"momentum", 1.7}};
  expect("must be in [0, 1), got 1.7");
  options.strategy_options = {{"momentum", 0.5}};
  expect("strategy 'average' takes no options");
  EXPECT_EQ(NumActorsEver(), 0);
}

TEST_F(TrainerFailureTest, AnExceptionInTrainEpochNamesEpochWorkerAndText) {
  QuadraticTrainer trainer(TwoWorkers(), {.faults = {{1, {2, "throw"}}}});
  const auto result = trainer.Train({.epochs = 5});
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("epoch 3/5: worker 1: "
                              "QuadraticWorker.TrainEpoch on 'worker-1'"),
                    HasSubstr("loss went up")));
  EXPECT_THAT(
      trainer.events,
      ElementsAre("train start", "epoch start 0", "sync 0", "epoch end 0",
                  "epoch start 1", "sync 1", "epoch end 1", "epoch start 2"));
  EXPECT_TRUE(Eventually([&] { return NumActors() == 0; }));
}

// Worker 0 would never return: the death of worker 1 must end Train all the
// same, and worker 0 with it.
TEST_F(TrainerFailureTest, AKilledWorkerEndsTrainAtOnceWithTheSignal) {
  QuadraticTrainer trainer(TwoWorkers(),
                           {.faults = {{0, {1, "hang"}}, {1, {1, "kill"}}}});
  const absl::Time start = absl::Now();
  const auto result = trainer.Train({.epochs = 5});
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("epoch 2/5: worker 1:"), HasSubstr("signal 9"),
                    Not(HasSubstr("worker 0"))));
  EXPECT_TRUE(Eventually([&] { return NumActors() == 0; }));
}

// With a state_dir, the trainer need not know of it.
TEST_F(TrainerFailureTest, AKilledParameterServerComesBackAndTrainingGoesOn) {
  auto train = [this](const std::string& name, bool kill_it) {
    TrainerOptions options = TwoWorkers();
    options.sync_strategy = "momentum";
    options.strategy_options = {{"momentum", 0.5}};
    options.server_options.state_dir = testing::TempDir() + "/" + name;
    std::filesystem::remove_all(options.server_options.state_dir);
    QuadraticTrainer trainer(options, {.targets = {4, 8}});
    trainer.at_epoch_end = [&](int epoch) {
      if (!kill_it || epoch % 2 == 1) return;
      const int64_t pid = nodes_.Info(trainer.parameter_server()).pid();
      ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
      ASSERT_TRUE(Eventually([&] {
        return nodes_.Info(trainer.parameter_server()).pid() != pid;
      }));
    };
    const auto result = trainer.Train({.epochs = 6});
    EXPECT_TRUE(result.ok()) << result.status();
    const absl::StatusOr<ps::SyncStats> stats = trainer.GetSyncStats();
    EXPECT_EQ(stats->num_syncs, 6);
    EXPECT_EQ(stats->num_restarts, kill_it ? 3 : 0);
    return trainer.PullWeights();
  };
  const auto undisturbed = train("undisturbed", false);
  const auto killed = train("killed", true);
  ASSERT_TRUE(undisturbed.ok() && killed.ok());
  EXPECT_EQ(killed->at(0).second.item<float>(),
            undisturbed->at(0).second.item<float>());
}

TEST_F(TrainerFailureTest, WorkersEndWithTheTrainer) {
  std::vector<int64_t> pids;
  {
    QuadraticTrainer trainer(TwoWorkers(), {});
    ASSERT_TRUE(trainer.Train({.epochs = 1}).ok());
    for (const auto& worker : trainer.workers()) {
      pids.push_back(*worker.Call<&QuadraticWorker::Pid>().Get());
      EXPECT_TRUE(ProcessLives(pids.back()));
    }
    EXPECT_EQ(NumActors(), 3) << "two workers and the parameter server";
  }
  EXPECT_TRUE(Eventually([&] {
    return NumActors() == 0 && !ProcessLives(pids[0]) && !ProcessLives(pids[1]);
  }));
}

TEST_F(TrainerFailureTest, WorkersWithoutAPlaceAreAnErrorAfterTheTimeout) {
  TrainerOptions options = TwoWorkers();
  options.num_workers = 5;  // The node has 4 CPUs.
  options.start_timeout = absl::Seconds(3);
  const absl::Status status = TrainWith(options, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the workers have no places, which they get "
                              "together"),
                    HasSubstr("5 x (CPU 1)"), HasSubstr("CPU 4"),
                    HasSubstr("--workers")));
  // None of them has run, though there was room for four.
  const v1::GetClusterStateResponse state = nodes_.head().GetState();
  for (const v1::ActorInfo& actor : state.actors()) {
    if (actor.class_name() == "QuadraticWorker") {
      EXPECT_EQ(actor.node_id(), "") << actor.name();
    }
  }
  EXPECT_TRUE(Eventually([&] { return NumActors() == 0; }));
}

TEST_F(TrainerFailureTest, AnErrorOfCreateWorkerNamesTheWorker) {
  const absl::Status status =
      TrainWith(TwoWorkers(), {.config = {{"lr", "fast"}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("worker 0: CreateWorker"), HasSubstr("'lr'")));
  EXPECT_TRUE(Eventually([&] { return NumActors() == 0; }));
}

// Its constructor throws.
class StillbornWorker {
 public:
  StillbornWorker() { throw std::runtime_error("no such model"); }
  Metrics TrainEpoch(int) { return {}; }
  NamedTensors GetWeights() { return {}; }
  void SetWeights(NamedTensors) {}
};
MINIRAY_ACTOR(StillbornWorker, Constructor<>, &StillbornWorker::TrainEpoch,
              &StillbornWorker::GetWeights, &StillbornWorker::SetWeights);

class StillbornTrainer : public DataParallelTrainer<StillbornWorker> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

 protected:
  absl::StatusOr<ActorHandle<StillbornWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    return cluster().CreateActor<StillbornWorker>(WorkerOptions(worker_id));
  }
};

TEST_F(TrainerFailureTest, AWorkerThatCannotBeConstructedSaysWhy) {
  StillbornTrainer trainer(TwoWorkers());
  const absl::Status status = trainer.Train({}).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'worker-"), HasSubstr("did not start"),
                    HasSubstr("no such model")));
}

// BaseTrainer with a worker that has nothing of the contract.
class ScoreWorker {
 public:
  explicit ScoreWorker(int id) : id_(id) {}
  absl::StatusOr<double> Play(int epoch) {
    if (epoch == 9) return absl::OutOfRangeError("game over");
    return id_ * 10 + epoch;
  }
  void Rest() {}

 private:
  const int id_;
};
MINIRAY_ACTOR(ScoreWorker, Constructor<int>, &ScoreWorker::Play,
              &ScoreWorker::Rest);

class ScoreTrainer : public BaseTrainer<ScoreWorker> {
 public:
  using BaseTrainer::BaseTrainer;
  int first_epoch = 0;
  bool own_epoch = true;

 protected:
  absl::StatusOr<ActorHandle<ScoreWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    return cluster().CreateActor<ScoreWorker>(WorkerOptions(worker_id),
                                              worker_id);
  }
  absl::StatusOr<EpochResult> TrainEpoch(int epoch) override {
    if (!own_epoch) return BaseTrainer::TrainEpoch(epoch);
    MR_RETURN_IF_ERROR(CallWorkers<&ScoreWorker::Rest>());
    MR_ASSIGN_OR_RETURN(std::vector<double> scores,
                        CallWorkers<&ScoreWorker::Play>(first_epoch + epoch));
    return EpochResult{
        .metrics = {{"best", *std::max_element(scores.begin(), scores.end())}}};
  }
};

TEST_F(TrainerFailureTest, BaseTrainerLeavesTheEpochToTheUser) {
  ScoreTrainer trainer(TwoWorkers());
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->history.size(), 3);
  EXPECT_EQ(result->history[2].metrics.at("best"), 12);
  EXPECT_EQ(result->history[2].epoch, 2);
  EXPECT_FALSE(result->history[2].synced);
  EXPECT_EQ(NumActors(), 2) << "no parameter server";
}

TEST_F(TrainerFailureTest, BaseTrainerRefusesWhatItWouldNotDo) {
  for (const char* const option :
       {"sync_every", "evaluate_every", "sync_interval"}) {
    TrainerOptions options = TwoWorkers();
    if (option == std::string("sync_every")) options.sync_every = 1;
    if (option == std::string("evaluate_every")) options.evaluate_every = 1;
    if (option == std::string("sync_interval")) options.sync_interval = 2;
    ScoreTrainer trainer(options);
    EXPECT_THAT(trainer.Train({.epochs = 1}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat(
                             option, " has no effect on a BaseTrainer"))));
  }
}

TEST_F(TrainerFailureTest, CallWorkersNamesWorkerAndMethod) {
  ScoreTrainer trainer(TwoWorkers());
  trainer.first_epoch = 9;
  const absl::Status status = trainer.Train({.epochs = 1}).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("epoch 1/1: worker "),
                    HasSubstr("ScoreWorker.Play on "), HasSubstr("game over")));
}

TEST_F(TrainerFailureTest, BaseTrainerWithoutAnyTrainEpochSaysSo) {
  ScoreTrainer trainer(TwoWorkers());
  trainer.own_epoch = false;
  const absl::Status status = trainer.Train({.epochs = 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("TrainEpoch(int epoch)"));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
