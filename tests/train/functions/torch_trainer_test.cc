// TorchTrainer where nothing fails: reports, checkpoints, resuming, local mode.

#include "train/functions/torch_trainer.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/runs/run_table.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/functions/walk.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

// Tells where it is, and nothing else.
void TellPlace(Context& ctx) {
  ctx.Report({{"rank", ctx.rank()},
              {"world_size", ctx.world_size()},
              {"local_rank", ctx.local_rank()},
              {"local_world_size", ctx.local_world_size()},
              {"node_rank", ctx.node_rank()},
              {"addresses", static_cast<double>(ctx.addresses().size())},
              {"is_named", ctx.trial_name() == "run"},
              {"is_on_cpu", ctx.device() == "cpu"}});
}
MINIRAY_TRAIN_FUNC(TellPlace);

// Tells which GPU this rank was given, as a number made from its name.
void TellGpu(Context& ctx) {
  const std::vector<std::string>& names = ActorContext::Current()->gpu_ids();
  ctx.Report({{"is_on_gpu", ctx.device() == "cuda"},
              {"gpus", static_cast<double>(names.size())},
              {"gpu", std::hash<std::string>()(names.at(0)) % 1'000'003}});
}
MINIRAY_TRAIN_FUNC(TellGpu);

// Each rank gives the files that the config names for it, "files0" and so on,
// and tells how many it has got, and whether the ranks' own are its own.
void GiveFiles(Context& ctx) {
  const std::string own = absl::StrCat("rank ", ctx.rank());
  double got = 0, got_own = 0;
  if (const CheckpointFiles* files = ctx.GetCheckpoint()) {
    got = static_cast<double>(files->size());
    for (const auto& [name, text] : *files) got_own += text == own;
  }
  CheckpointFiles files;
  for (const auto& name : absl::StrSplit(
           ctx.config<std::string>(absl::StrCat("files", ctx.rank()), ""), ' ',
           absl::SkipEmpty())) {
    files[std::string(name)] = own;
  }
  ctx.Report({{"got", got}, {"got_own", got_own}}, std::move(files));
}
MINIRAY_TRAIN_FUNC(GiveFiles);

void NotRegistered(Context&) {}

class TorchTrainerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {4}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  TorchTrainerOptions Options(int num_workers = 2, int epochs = 4) {
    TorchTrainerOptions options;
    options.config = {{"epochs", epochs}};
    options.scaling.num_workers = num_workers;
    options.run.name = "run";
    options.run.storage_path = temp_.path();
    options.cluster = *cluster_;
    return options;
  }
  std::string folder() const { return temp_ / "run"; }
  std::vector<std::string> Checkpoints() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      const std::string name = entry.path().filename().string();
      if (EpochsOfCheckpointName(name).has_value()) names.insert(name);
    }
    return {names.begin(), names.end()};
  }
  std::vector<int> HistoryOnDisk() const {
    std::vector<int> epochs;
    const std::string text = *ReadFile(folder() + "/history.jsonl");
    for (const auto& line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      epochs.push_back(Json::parse(line)["epoch"]);
    }
    return epochs;
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};

TestCluster* TorchTrainerTest::nodes_ = nullptr;
Cluster* TorchTrainerTest::cluster_ = nullptr;

// The metrics of a run of Walk that do not depend on the process.
std::vector<Metrics> Numbers(const Result& result) {
  std::vector<Metrics> numbers;
  for (const EpochResult& epoch : result.history) {
    for (Metrics metrics : epoch.per_worker) {
      metrics.erase("pid");
      numbers.push_back(std::move(metrics));
    }
  }
  return numbers;
}

TEST_F(TorchTrainerTest, KeepsTheMetricsOfAllRanksAndThoseOfRank0AsItsOwn) {
  TorchTrainer trainer(Walk, Options());
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  ASSERT_THAT(result->history, SizeIs(4));
  for (int i = 0; i < 4; ++i) {
    const EpochResult& epoch = result->history[i];
    EXPECT_EQ(epoch.epoch, i);
    EXPECT_EQ(epoch.metrics.at("x"), WalkedTo(0, i + 1));
    ASSERT_THAT(epoch.per_worker, SizeIs(2));
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(epoch.per_worker[rank].at("rank"), rank);
      EXPECT_EQ(epoch.per_worker[rank].at("x"), WalkedTo(rank, i + 1));
    }
    EXPECT_EQ(epoch.min.at("x"), WalkedTo(0, i + 1));
    EXPECT_EQ(epoch.max.at("x"), WalkedTo(1, i + 1));
    EXPECT_GE(epoch.seconds, epoch.timing.compute);
    EXPECT_GE(epoch.timing.compute, epoch.timing.wait);
  }
  EXPECT_NE(result->history[0].per_worker[0].at("pid"),
            result->history[0].per_worker[1].at("pid"));
  EXPECT_EQ(result->metrics().at("x"), WalkedTo(0, 4));
  EXPECT_EQ(result->path, folder());
  EXPECT_EQ(result->checkpoint, folder() + "/checkpoint_000004");
  EXPECT_THAT(result->failures, IsEmpty());
  EXPECT_THAT(result->warnings, IsEmpty());
  EXPECT_THAT(HistoryOnDisk(), ElementsAre(0, 1, 2, 3));
  const Json json = Json::parse(*ReadFile(folder() + "/result.json"));
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(json["epochs"], 4);
}

TEST_F(TorchTrainerTest, TheHeadIsToldOfAllRanks) {
  TorchTrainerOptions options = Options();
  options.run.run_id = "walk";
  TorchTrainer trainer(Walk, options);
  ASSERT_THAT(trainer.Fit(), IsOk());
  v1::GetRunRequest get;
  get.set_run_id("walk");
  const auto run = nodes_->head().runs().Get(get);
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->run().kind(), "TorchTrainer");
  EXPECT_EQ(run->run().state(), v1::RUN_STATE_FINISHED);
  EXPECT_EQ(run->run().num_workers(), 2);
  EXPECT_EQ(run->run().epochs(), 0);  // Only the function knows.
  EXPECT_EQ(run->run().epoch(), 4);
  EXPECT_EQ(run->run().folder(), folder());
  int num_curves = 0;
  for (const v1::RunCurve& curve : run->curves()) {
    if (curve.metric() != "x") continue;
    ++num_curves;
    ASSERT_EQ(curve.epochs_size(), 4) << curve.worker();
    const int rank = std::max(curve.worker(), 0);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(curve.epochs(i), i + 1);
      EXPECT_EQ(curve.values(i), WalkedTo(rank, i + 1));
    }
  }
  EXPECT_EQ(num_curves, 3);
}

TEST_F(TorchTrainerTest, WhoWatchesMayStopIt) {
  // Asks the head for a stop, once it knows of the run.
  class Asks : public Callback {
   public:
    void OnEpochEnd(TrainContext&, const EpochResult&) override {
      v1::StopRunRequest stop;
      stop.set_run_id("to-be-stopped");
      asked = asked || nodes_->head().runs().Stop(stop).ok();
    }
    bool asked = false;
  };
  TorchTrainerOptions options = Options(2, 100000);
  options.config.Set("epoch_seconds", 0.005);
  options.config.Set("save_every", int64_t{1} << 30);
  options.run.name = "to-be-stopped";
  const auto asks = std::make_shared<Asks>();
  options.run.callbacks = {asks};
  TorchTrainer trainer(Walk, options);
  ASSERT_THAT(trainer.Fit(), IsOk());
  EXPECT_TRUE(asks->asked);
  EXPECT_LT(trainer.last_result().history.size(), 100000u);
  v1::GetRunRequest get;
  get.set_run_id("to-be-stopped");
  EXPECT_EQ(nodes_->head().runs().Get(get)->run().state(),
            v1::RUN_STATE_STOPPED);
}

TEST_F(TorchTrainerTest, TheWorkersEndWithFit) {
  TorchTrainer trainer(Walk, Options());
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  for (const Metrics& rank : result->history[0].per_worker) {
    const auto pid = static_cast<int64_t>(rank.at("pid"));
    EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); })) << pid;
  }
}

TEST_F(TorchTrainerTest, RanksKnowTheirPlace) {
  TestCluster nodes({.node_cpus = {2, 2}});
  TorchTrainerOptions options = Options(/*num_workers=*/3);
  options.cluster = nodes.Connect();
  TorchTrainer trainer(TellPlace, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  int on_node[2] = {0, 0};
  for (int rank = 0; rank < 3; ++rank) {
    Metrics place = result->history[0].per_worker[rank];
    EXPECT_EQ(place["rank"], rank);
    EXPECT_EQ(place["world_size"], 3);
    EXPECT_EQ(place["addresses"], 3);
    EXPECT_EQ(place["is_named"], 1);
    EXPECT_EQ(place["is_on_cpu"], 1);
    const int node = static_cast<int>(place["node_rank"]);
    ASSERT_TRUE(node == 0 || node == 1);
    EXPECT_EQ(place["local_rank"], on_node[node]++);
  }
  EXPECT_EQ(result->history[0].per_worker[0].at("node_rank"), 0);
  for (const Metrics& place : result->history[0].per_worker) {
    EXPECT_EQ(place.at("local_world_size"),
              on_node[static_cast<int>(place.at("node_rank"))]);
  }
  EXPECT_EQ(on_node[0] + on_node[1], 3);
  EXPECT_GT(on_node[1], 0);
}

TEST_F(TorchTrainerTest, RanksLieAsThePlacementStrategySays) {
  TestCluster nodes({.node_cpus = {2, 2}});
  TorchTrainerOptions options = Options();
  options.cluster = nodes.Connect();
  for (const auto& [strategy, node_of_rank_1] :
       {std::pair(PlacementStrategy::kStrictPack, 0),
        std::pair(PlacementStrategy::kStrictSpread, 1)}) {
    options.scaling.placement_strategy = strategy;
    TorchTrainer trainer(TellPlace, options);
    const auto result = trainer.Fit();
    ASSERT_THAT(result, IsOk());
    const std::vector<Metrics>& ranks = result->history[0].per_worker;
    EXPECT_EQ(ranks[0].at("node_rank"), 0);
    EXPECT_EQ(ranks[1].at("node_rank"), node_of_rank_1);
  }
}

// As far as a machine without any shows it.
TEST_F(TorchTrainerTest, EachRankHasGpusOfItsOwn) {
  TestCluster nodes(
      {.node_cpus = {2}, .configure_node = [](WorkerDaemon::Options* node) {
         (*node->resources.mutable_quantity())["GPU"] = 2;
       }});
  TorchTrainerOptions options = Options();
  options.cluster = nodes.Connect();
  options.scaling.use_gpu = true;
  TorchTrainer trainer(TellGpu, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  std::set<double> gpus;
  for (const Metrics& rank : result->history[0].per_worker) {
    EXPECT_EQ(rank.at("is_on_gpu"), 1);
    EXPECT_EQ(rank.at("gpus"), 1);
    gpus.insert(rank.at("gpu"));
  }
  EXPECT_THAT(gpus, SizeIs(2));
}

TEST_F(TorchTrainerTest, LocalModeComesToWhatOneWorkerComesTo) {
  TorchTrainer one(Walk, Options(/*num_workers=*/1));
  const auto by_worker = one.Fit();
  ASSERT_THAT(by_worker, IsOk());
  TorchTrainerOptions options = Options(/*num_workers=*/0);
  options.run.name = "local";
  options.cluster.reset();
  TorchTrainer local(Walk, options);
  const auto in_process = local.Fit();
  ASSERT_THAT(in_process, IsOk());
  EXPECT_EQ(Numbers(*in_process), Numbers(*by_worker));
  EXPECT_EQ(in_process->metrics().at("pid"), getpid());
  EXPECT_NE(by_worker->metrics().at("pid"), getpid());
  const auto a = ReadCheckpoint(in_process->checkpoint);
  const auto b = ReadCheckpoint(by_worker->checkpoint);
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_EQ(a->workers, b->workers);
}

TEST_F(TorchTrainerTest, TheSameNameGoesOn) {
  for (const int epochs : {2, 5, 5}) {
    TorchTrainer trainer(Walk, Options(/*num_workers=*/2, epochs));
    const auto result = trainer.Fit();
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->history, SizeIs(epochs));
    EXPECT_EQ(result->metrics().at("x"), WalkedTo(0, epochs));
    EXPECT_EQ(result->history.back().per_worker[1].at("x"),
              WalkedTo(1, epochs));
  }
  EXPECT_THAT(HistoryOnDisk(), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(TorchTrainerTest, WithoutResumeTheSameNameIsAnError) {
  TorchTrainer first(Walk, Options());
  ASSERT_THAT(first.Fit(), IsOk());
  TorchTrainerOptions options = Options();
  options.run.resume = false;
  TorchTrainer second(Walk, options);
  EXPECT_THAT(second.Fit(), StatusIs(absl::StatusCode::kAlreadyExists,
                                     HasSubstr("run.resume")));
  EXPECT_THAT(HistoryOnDisk(), SizeIs(4));
}

TEST_F(TorchTrainerTest, ARunWithoutCheckpointsBeginsAgain) {
  TorchTrainerOptions options = Options();
  options.config.Set("save_every", 100);
  for (int i = 0; i < 2; ++i) {
    TorchTrainer trainer(Walk, options);
    const auto result = trainer.Fit();
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->history, SizeIs(4));
    EXPECT_THAT(result->warnings, SizeIs(i));
    EXPECT_EQ(result->checkpoint, "");
  }
  EXPECT_THAT(HistoryOnDisk(), ElementsAre(0, 1, 2, 3));
}

TEST_F(TorchTrainerTest, ACheckpointOfAnotherRunIsGoneOnFromOnce) {
  TorchTrainer first(Walk, Options(/*num_workers=*/2, /*epochs=*/2));
  const auto before = first.Fit();
  ASSERT_THAT(before, IsOk());
  TorchTrainerOptions options = Options();
  options.run.name = "other";
  options.resume_from_checkpoint = before->checkpoint;
  TorchTrainer second(Walk, options);
  const auto result = second.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(4));
  EXPECT_EQ(result->metrics().at("x"), WalkedTo(0, 4));
  // Now it has checkpoints of its own.
  options.config.Set("epochs", 5);
  TorchTrainer third(Walk, options);
  const auto last = third.Fit();
  ASSERT_THAT(last, IsOk());
  EXPECT_EQ(last->history[3].metrics.at("pid"),
            result->history[3].metrics.at("pid"));
  EXPECT_THAT(last->history, SizeIs(5));

  options.run.name = "none";
  options.resume_from_checkpoint = temp_ / "nowhere";
  TorchTrainer fourth(Walk, options);
  EXPECT_THAT(fourth.Fit(), StatusIs(absl::StatusCode::kNotFound,
                                     HasSubstr("resume_from_checkpoint")));
}

TEST_F(TorchTrainerTest, ACheckpointHasThePartsOfAllRanks) {
  TorchTrainerOptions options = Options();
  options.config = {{"files0", std::string("model meta")},
                    {"files1", std::string("meta random")}};
  TorchTrainer first(GiveFiles, options);
  const auto before = first.Fit();
  ASSERT_THAT(before, IsOk());
  const auto checkpoint = ReadCheckpoint(before->checkpoint);
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_THAT(checkpoint->workers, SizeIs(2));
  EXPECT_THAT(checkpoint->workers[0], SizeIs(2));
  EXPECT_THAT(checkpoint->workers[1], SizeIs(2));

  // Three ranks: the last one gets what rank 0 gave.
  options.scaling.num_workers = 3;
  TorchTrainer second(GiveFiles, options);
  const auto result = second.Fit();
  ASSERT_THAT(result, IsOk());
  const auto& ranks = result->history.at(1).per_worker;
  EXPECT_EQ(ranks[0].at("got"), 2);
  EXPECT_EQ(ranks[0].at("got_own"), 2);
  EXPECT_EQ(ranks[1].at("got"), 3);  // Its own two, and rank 0's model.
  EXPECT_EQ(ranks[1].at("got_own"), 2);
  EXPECT_EQ(ranks[2].at("got"), 2);
  EXPECT_EQ(ranks[2].at("got_own"), 0);
}

TEST_F(TorchTrainerTest, FrequencyAndNumToKeepSayWhichCheckpointsThereAre) {
  TorchTrainerOptions options = Options(/*num_workers=*/1, /*epochs=*/9);
  options.run.checkpoint.frequency = 2;
  options.run.checkpoint.num_to_keep = 2;
  options.run.checkpoint.score_metric = "x";
  options.run.checkpoint.score_order = ScoreOrder::kMin;
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  // The best two, of which x has grown least, and the last one.
  EXPECT_THAT(Checkpoints(),
              ElementsAre("checkpoint_000002", "checkpoint_000004",
                          "checkpoint_000008"));
  EXPECT_EQ(result->checkpoint, folder() + "/checkpoint_000008");
  EXPECT_EQ(result->best_checkpoint, folder() + "/checkpoint_000002");
  ASSERT_THAT(result->best_checkpoints, SizeIs(3));
  EXPECT_EQ(result->best_checkpoints[0].path, result->best_checkpoint);
  EXPECT_EQ(result->best_checkpoints[1].epochs, 4);
  EXPECT_EQ(result->best_checkpoints[2].path, result->checkpoint);
}

// Keeps what it hears, and stops training after so many reports.
class Observer : public Callback {
 public:
  explicit Observer(int stop_after) : stop_after_(stop_after) {}

  void OnTrainStart(TrainContext& context) override { Hear("start"); }
  void OnResume(TrainContext& context,
                const std::vector<EpochResult>& history) override {
    Hear(absl::StrCat("resume ", history.size()));
  }
  void OnEpochEnd(TrainContext& context, const EpochResult& result) override {
    Hear(absl::StrCat("epoch ", result.epoch));
    if (result.epoch + 1 == stop_after_) context.RequestStop();
  }
  void OnCheckpoint(TrainContext& context,
                    const CheckpointInfo& info) override {
    ++checkpoints;
  }
  void OnTrainEnd(TrainContext& context, const Result& result) override {
    Hear(absl::StrCat("end ", result.history.size()));
  }

  std::vector<std::string> heard;
  int checkpoints = 0;

 private:
  void Hear(std::string what) { heard.push_back(std::move(what)); }
  const int stop_after_;
};

TEST_F(TorchTrainerTest, CallbacksHearOfReportsAndMayStopTraining) {
  for (const int num_workers : {2, 0}) {
    TorchTrainerOptions options = Options(num_workers, /*epochs=*/100);
    options.run.name = absl::StrCat("run", num_workers);
    auto observer = std::make_shared<Observer>(3);
    options.run.callbacks = {observer};
    TorchTrainer trainer(Walk, options);
    const auto result = trainer.Fit();
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->history, SizeIs(3));
    EXPECT_THAT(observer->heard,
                ElementsAre("start", "epoch 0", "epoch 1", "epoch 2", "end 3"));
    EXPECT_EQ(observer->checkpoints, 3);

    observer = std::make_shared<Observer>(4);
    options.run.callbacks = {observer};
    TorchTrainer again(Walk, options);
    ASSERT_THAT(again.Fit(), IsOk());
    EXPECT_THAT(observer->heard,
                ElementsAre("start", "resume 3", "epoch 3", "end 4"));
  }
}

// Sends this process SIGTERM with that report.
class Signaller : public Callback {
 public:
  explicit Signaller(int report) : report_(report) {}
  void OnEpochEnd(TrainContext& context, const EpochResult& result) override {
    if (result.epoch == report_) raise(SIGTERM);
  }

 private:
  const int report_;
};

// Before the first checkpoint there is, and before the first of a run that goes
// on.
TEST_F(TorchTrainerTest, ASignalBeforeACheckpointIsDueAsksForOne) {
  for (const int num_workers : {2, 0}) {
    TorchTrainerOptions options = Options(num_workers, /*epochs=*/100);
    options.run.name = absl::StrCat("run", num_workers);
    options.run.checkpoint.frequency = 10;
    for (const int report : {2, 4}) {
      options.run.callbacks = {std::make_shared<Signaller>(report)};
      TorchTrainer trainer(Walk, options);
      const auto result = trainer.Fit();
      ASSERT_THAT(result, IsOk());
      EXPECT_EQ(result->stopped_by, "SIGTERM");
      EXPECT_THAT(result->history, SizeIs(report + 2));
      EXPECT_EQ(result->checkpoint,
                absl::StrCat(result->path, "/", CheckpointName(report + 2)));
    }
  }
}

TEST_F(TorchTrainerTest, ASignalWaitsForTheCheckpointsThatTheFunctionMakes) {
  TorchTrainerOptions options = Options(/*num_workers=*/0, /*epochs=*/100);
  options.config.Set("save_every", 5);  // Whatever it is asked for.
  for (const int report : {6, 11}) {
    options.run.callbacks = {std::make_shared<Signaller>(report)};
    TorchTrainer trainer(Walk, options);
    const auto result = trainer.Fit();
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->history, SizeIs(report == 6 ? 10 : 15));
    EXPECT_EQ(
        result->checkpoint,
        absl::StrCat(folder(), "/", CheckpointName(report == 6 ? 10 : 15)));
  }
  // One that makes none is asked once.
  options.run.name = "none";
  options.config.Set("save_every", 1000);
  options.run.callbacks = {std::make_shared<Signaller>(2)};
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->stopped_by, "SIGTERM");
  EXPECT_THAT(result->history, SizeIs(4));
  EXPECT_EQ(result->checkpoint, "");
}

class Thrower : public Callback {
 public:
  void OnEpochEnd(TrainContext& context, const EpochResult& result) override {
    throw std::runtime_error("a callback's own");
  }
};

TEST_F(TorchTrainerTest, WhatACallbackThrowsPassesThroughFit) {
  for (const int num_workers : {2, 0}) {
    TorchTrainerOptions options = Options(num_workers);
    options.run.name = absl::StrCat("run", num_workers);
    options.run.callbacks = {std::make_shared<Thrower>()};
    options.run.failure.max_failures = -1;
    TorchTrainer trainer(Walk, options);
    EXPECT_THROW(trainer.Fit().IgnoreError(), std::runtime_error);
    EXPECT_THAT(
        trainer.last_result().error,
        StatusIs(absl::StatusCode::kInternal, HasSubstr("a callback's own")));
  }
}

TEST_F(TorchTrainerTest, WithoutAStoragePathNothingIsWritten) {
  TorchTrainerOptions options = Options();
  options.run.name = "";
  options.run.storage_path = "";
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(4));
  EXPECT_EQ(result->path, "");
  EXPECT_EQ(result->checkpoint, "");
}

TEST_F(TorchTrainerTest, OptionsThatCannotBeAreErrorsAtOnce) {
  const auto error_of = [&](auto change) {
    TorchTrainerOptions options = Options();
    change(options);
    TorchTrainer trainer(Walk, options);
    const absl::Status status = trainer.Fit().status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
    return std::string(status.message());
  };
  using Given = TorchTrainerOptions;
  EXPECT_THAT(error_of([](Given& o) { o.scaling.num_workers = -1; }),
              HasSubstr("num_workers"));
  EXPECT_THAT(error_of([](Given& o) {
                o.scaling.num_workers = {3, 2};
              }),
              HasSubstr("3 to 2"));
  EXPECT_THAT(error_of([](Given& o) {
                o.scaling.num_workers = {0, 2};
              }),
              HasSubstr("0 to 2"));
  EXPECT_THAT(error_of([](Given& o) {
                o.scaling.num_workers = {1, 2};
                o.scaling.placement_strategy = PlacementStrategy::kStrictPack;
              }),
              HasSubstr("strict"));
  EXPECT_THAT(
      error_of([](Given& o) { o.scaling.resources_per_worker.gpu = 1; }),
      HasSubstr("use_gpu"));
  EXPECT_THAT(error_of([](Given& o) { o.run.name = "a/b"; }),
              HasSubstr("run.name"));
  EXPECT_THAT(error_of([](Given& o) { o.run.checkpoint.at_end = true; }),
              HasSubstr("at_end"));
  EXPECT_THAT(error_of([](Given& o) { o.run.checkpoint.resume = "auto"; }),
              HasSubstr("run.resume"));
  EXPECT_THAT(error_of([](Given& o) { o.run.checkpoint.frequency = -1; }),
              HasSubstr("frequency"));
  EXPECT_THAT(
      error_of([](Given& o) { o.run.failure.policy = FailurePolicy::kHeal; }),
      HasSubstr("kGroup"));
  EXPECT_THAT(error_of([](Given& o) { o.run.failure.max_failures = -2; }),
              HasSubstr("max_failures"));
  EXPECT_THAT(error_of([](Given& o) {
                o.run.report_timeout = absl::InfiniteDuration();
              }),
              HasSubstr("report_timeout"));
  EXPECT_THAT(
      error_of([](Given& o) { o.run.abort_timeout = absl::ZeroDuration(); }),
      HasSubstr("abort_timeout"));
  for (const absl::Duration limit :
       {absl::ZeroDuration(), absl::InfiniteDuration()}) {
    EXPECT_THAT(error_of([=](Given& o) { o.run.collective_timeout = limit; }),
                HasSubstr("collective_timeout"));
  }
  EXPECT_THAT(error_of([](Given& o) {
                o.scaling.start_timeout = absl::InfiniteDuration();
              }),
              HasSubstr("start_timeout"));
  EXPECT_THAT(error_of([](Given& o) { o.run.callbacks = {nullptr}; }),
              HasSubstr("callbacks"));
  EXPECT_THAT(error_of([](Given& o) {
                o.run.storage_path = "";
                o.run.checkpoint.num_to_keep = 1;
              }),
              HasSubstr("storage_path"));
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(TorchTrainerTest, AFunctionThatIsNotRegisteredIsAnErrorAtOnce) {
  TorchTrainer trainer(NotRegistered, Options());
  EXPECT_THAT(trainer.Fit(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("MINIRAY_TRAIN_FUNC")));
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(TorchTrainerTest, WorkersWithoutAPlaceAreAnErrorWithWhatIsMissing) {
  TorchTrainerOptions options = Options(/*num_workers=*/5);
  options.scaling.start_timeout = absl::Seconds(1);
  options.run.failure.max_failures = -1;
  TorchTrainer trainer(Walk, options);
  EXPECT_THAT(trainer.Fit(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      HasSubstr("num_workers")));
  // And they are gone: others find a place.
  TorchTrainer next(Walk, Options(/*num_workers=*/4));
  EXPECT_THAT(next.Fit(), IsOk());
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
