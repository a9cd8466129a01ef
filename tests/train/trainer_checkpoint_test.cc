// Checkpoints of trainings with real workers: what goes on from one is what had
// never stopped, whatever it was that stopped it.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/checkpoint_worker.h"
#include "tests/train/driver_process.h"
#include "tests/train/quadratic_worker.h"
#include "train/checkpoint.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

namespace fs = std::filesystem;

// With this in its environment, "ADDRESS FOLDER EPOCHS SECONDS BYTES", the
// test's executable is a driver that trains there.
constexpr char kDriverVariable[] = "CHECKPOINT_TEST_DRIVER";

// Momentum on the server has a state of its own, too; workers are apart for
// two epochs of three.
TrainerOptions TwoWorkers(const Cluster& cluster, const std::string& storage,
                          CheckpointConfig checkpoint) {
  TrainerOptions options;
  options.num_workers = 2;
  options.cluster = cluster;
  options.storage_path = storage;
  options.name = "run";
  options.checkpoint = std::move(checkpoint);
  options.sync_interval = 3;
  options.sync_strategy = "momentum";
  options.strategy_options = {{"momentum", 0.5}};
  return options;
}

// Of all weights, as bytes.
std::string Bytes(const absl::StatusOr<NamedTensors>& weights) {
  std::string bytes;
  if (!weights.ok()) return weights.status().ToString();
  for (const auto& [name, tensor] : *weights) {
    bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  }
  return bytes;
}

// The losses of all epochs, those of each worker too.
std::vector<double> Losses(const Result& result) {
  std::vector<double> losses;
  for (const EpochResult& epoch : result.history) {
    losses.push_back(epoch.metrics.at("loss"));
    for (const Metrics& worker : epoch.per_worker) {
      losses.push_back(worker.at("loss"));
    }
  }
  return losses;
}

// Epochs in history.jsonl; each line must be whole.
std::vector<int> HistoryEpochs(const std::string& folder) {
  std::vector<int> epochs;
  const std::string text = *ReadFile(folder + "/history.jsonl");
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    epochs.push_back(Json::parse(line)["epoch"]);
  }
  return epochs;
}

std::vector<int> UpTo(int epochs) {
  std::vector<int> all;
  for (int i = 0; i < epochs; ++i) all.push_back(i);
  return all;
}

std::vector<std::string> CheckpointsIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (EpochsOfCheckpointName(name).has_value()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Whether a checkpoint is half written.
bool HasPart(const std::string& folder) {
  const fs::directory_iterator entries(folder);
  return std::any_of(begin(entries), end(entries), [](const auto& entry) {
    return entry.path().extension() == ".part";
  });
}

class TrainerCheckpointTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {8}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  TrainerOptions Options(CheckpointConfig checkpoint) {
    return TwoWorkers(*cluster_, temp_.path(), std::move(checkpoint));
  }

  // What an undisturbed training comes to: losses, then the weights' bytes.
  std::pair<std::vector<double>, std::string> Undisturbed(
      int epochs, const Config& config = {}) {
    TrainerOptions options = Options({});
    options.storage_path.clear();
    options.name.clear();
    CheckpointTrainer trainer(options);
    const auto result = trainer.Train({.epochs = epochs, .config = config});
    EXPECT_THAT(result, IsOk());
    return {Losses(*result), Bytes(trainer.PullWeights())};
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};
TestCluster* TrainerCheckpointTest::nodes_;
Cluster* TrainerCheckpointTest::cluster_;

// Stopped after 4 epochs, in the middle between two synchronisations, and then
// by the end at 6 of those that were asked for. Several shards have the bits of
// one.
TEST_F(TrainerCheckpointTest, AResumedRunIsTheUninterruptedOneBitForBit) {
  const std::pair<const char*, int64_t> variants[] = {
      {"adam", 1}, {"momentum", 1}, {"adam", 3}};
  for (const auto& [optimizer, num_shards] : variants) {
    SCOPED_TRACE(absl::StrCat(optimizer, ", ", num_shards, " shards"));
    const Config config = {{"optimizer", optimizer}};
    const auto [losses, weights] = Undisturbed(8, config);
    TempFolder storage;
    auto options = [&, num_shards = num_shards](CheckpointConfig checkpoint) {
      TrainerOptions options =
          TwoWorkers(*cluster_, storage.path(), std::move(checkpoint));
      options.server_options.num_shards = num_shards;
      return options;
    };
    {
      CheckpointTrainer trainer(options({.frequency = 4}));
      trainer.at_epoch_end = [](int epoch) {
        if (epoch == 4) throw std::runtime_error("the driver ends here");
      };
      EXPECT_THROW(trainer.Train({.epochs = 8, .config = config}).IgnoreError(),
                   std::runtime_error);
    }
    {
      CheckpointTrainer trainer(options({.at_end = true, .resume = "auto"}));
      std::vector<int> trained;
      trainer.at_epoch_end = [&](int epoch) { trained.push_back(epoch); };
      const auto result = trainer.Train({.epochs = 6, .config = config});
      ASSERT_THAT(result, IsOk());
      EXPECT_THAT(trained, ElementsAre(4, 5));
      EXPECT_THAT(result->history, SizeIs(6));
      EXPECT_EQ(result->checkpoint, storage / "run/checkpoint_000006");
    }
    CheckpointTrainer trainer(options({.resume = "auto"}));
    const auto result = trainer.Train({.epochs = 8, .config = config});
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->warnings, IsEmpty());
    EXPECT_EQ(Losses(*result), losses);
    EXPECT_EQ(Bytes(trainer.PullWeights()), weights);
    EXPECT_EQ(HistoryEpochs(storage / "run"), UpTo(8));
  }
}

TEST_F(TrainerCheckpointTest, HooksAndResultTellOfThem) {
  class Recorder : public Callback {
   public:
    void OnCheckpoint(TrainContext& context,
                      const CheckpointInfo& info) override {
      epochs.push_back(info.epochs);
    }
    void OnResume(TrainContext& context,
                  const std::vector<EpochResult>& history) override {
      resumed_after = static_cast<int>(history.size());
    }
    std::vector<int> epochs;
    int resumed_after = -1;
  };
  auto recorder = std::make_shared<Recorder>();
  TrainerOptions options = Options({.frequency = 2,
                                    .at_end = true,
                                    .num_to_keep = 1,
                                    .score_metric = "epoch",
                                    .score_order = ScoreOrder::kMin});
  options.callbacks = {recorder};
  CheckpointTrainer trainer(options);
  const auto result = trainer.Train({.epochs = 7});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(recorder->epochs, ElementsAre(2, 4, 6, 7));
  ASSERT_THAT(trainer.checkpoints, SizeIs(4));
  EXPECT_EQ(trainer.checkpoints[1].metrics.at("epoch"), 3);
  EXPECT_GT(trainer.checkpoints[1].bytes, 1000);
  EXPECT_GT(trainer.checkpoints[1].seconds, 0);
  EXPECT_EQ(result->checkpoint, temp_ / "run/checkpoint_000007");
  EXPECT_EQ(result->best_checkpoint, temp_ / "run/checkpoint_000002");
  for (int epoch = 0; epoch < 7; ++epoch) {
    const bool taken = epoch % 2 == 1 || epoch == 6;
    EXPECT_EQ(result->history[epoch].timing.checkpoint > 0, taken) << epoch;
  }
  EXPECT_THAT(CheckpointsIn(temp_ / "run"),
              ElementsAre("checkpoint_000002", "checkpoint_000007"));
  const Json json = Json::parse(*ReadFile(temp_ / "run/result.json"));
  EXPECT_EQ(json["checkpoint"], result->checkpoint);
  EXPECT_EQ(json["best_checkpoint"], result->best_checkpoint);
  ASSERT_THAT(json["best_checkpoints"], SizeIs(2));
  EXPECT_EQ(json["best_checkpoints"][0]["path"], result->best_checkpoint);
  EXPECT_EQ(json["best_checkpoints"][0]["epochs"], 2);
  EXPECT_EQ(json["best_checkpoints"][1]["metrics"]["epoch"], 6);
  EXPECT_EQ(json["timing"]["checkpoint"].get<double>(),
            result->timing().checkpoint);
  for (const char* const worker : {"worker_000", "worker_001"}) {
    EXPECT_TRUE(fs::exists(result->checkpoint + "/" + worker + "/net.pt"));
  }
  EXPECT_EQ(recorder->resumed_after, -1);
  EXPECT_THAT(result->warnings, IsEmpty());
  trainer.Shutdown();
  options.checkpoint.resume = "auto";
  options.checkpoint.score_metric = "los";
  CheckpointTrainer again(options);
  const auto more = again.Train({.epochs = 8});
  ASSERT_THAT(more, IsOk());
  EXPECT_EQ(recorder->resumed_after, 7);
  EXPECT_THAT(more->warnings,
              ElementsAre(AllOf(HasSubstr("score_metric is 'los'"),
                                HasSubstr("epoch, loss"))));
}

// Nothing is left to train, but whoever sent the signal hears of it.
TEST_F(TrainerCheckpointTest, ASignalInTheLastEpochIsTold) {
  CheckpointTrainer trainer(Options({.frequency = 1, .at_end = true}));
  trainer.at_epoch_start = [](int epoch) {
    if (epoch == 1) raise(SIGTERM);
  };
  const auto result = trainer.Train({.epochs = 2});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(2));
  EXPECT_EQ(result->stopped_by, "SIGTERM");
  EXPECT_EQ(result->checkpoint, temp_ / "run/checkpoint_000002");
}

// While workers are waited for: for places, of which there are none for two
// that want the whole node; for their processes; for their data.
TEST_F(TrainerCheckpointTest, ASignalBeforeTheFirstEpochEndsTrainAtOnce) {
  class SignalledTrainer : public CheckpointTrainer {
   public:
    using CheckpointTrainer::CheckpointTrainer;

   protected:
    absl::StatusOr<ActorHandle<CheckpointWorker>> CreateWorker(
        int worker_id, const Config& config) override {
      if (worker_id == 0) raise(SIGTERM);
      return CheckpointTrainer::CreateWorker(worker_id, config);
    }
  };
  const auto is_cancelled =
      StatusIs(absl::StatusCode::kCancelled,
               HasSubstr("SIGTERM came before training began"));
  const absl::Time start = absl::Now();
  TrainerOptions options = Options({.frequency = 1, .resume = "auto"});
  for (const double cpu : {8, 1}) {
    options.worker_resources.cpu = cpu;
    SignalledTrainer trainer(options);
    EXPECT_THAT(trainer.Train({.epochs = 2}), is_cancelled);
    EXPECT_EQ(trainer.last_result().stopped_by, "SIGTERM");
    EXPECT_TRUE(trainer.workers().empty());
  }
  {
    const std::string loading = temp_ / "loading";
    std::thread signaller([&] {
      if (Eventually([&] { return fs::exists(loading); }, absl::Seconds(60))) {
        kill(getpid(), SIGTERM);
      }
    });
    CheckpointTrainer trainer(options);
    EXPECT_THAT(
        trainer.Train({.epochs = 2, .config = {{"loading_file", loading}}}),
        is_cancelled);
    signaller.join();
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(45));
  CheckpointTrainer trainer(options);
  EXPECT_THAT(trainer.Train({.epochs = 2}), IsOk());
  // What had been trained before is not forgotten.
  SignalledTrainer resumed(options);
  EXPECT_THAT(resumed.Train({.epochs = 3}), is_cancelled);
  EXPECT_EQ(resumed.last_result().history.size(), 2u);
}

TEST_F(TrainerCheckpointTest, WhatARunCameToGoesWhenItGoesOn) {
  const std::string path = temp_ / "run/result.json";
  TrainerOptions options = Options({.frequency = 1, .resume = "auto"});
  {
    CheckpointTrainer trainer(options);
    ASSERT_THAT(trainer.Train({.epochs = 1}), IsOk());
  }
  options.num_workers = 3;
  EXPECT_THAT(CheckpointTrainer(options).Train({.epochs = 2}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("give num_workers (--workers) 2")));
  EXPECT_TRUE(fs::exists(path));
  options.num_workers = 2;
  CheckpointTrainer trainer(options);
  int epochs = 0;
  trainer.at_epoch_start = [&](int) {
    ++epochs;
    EXPECT_FALSE(fs::exists(path));
  };
  ASSERT_THAT(trainer.Train({.epochs = 2}), IsOk());
  EXPECT_EQ(epochs, 1);
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(TrainerCheckpointTest, APathIsGoneOnWithUnderANewNameToo) {
  const auto [losses, weights] = Undisturbed(5);
  TrainerOptions options = Options({.frequency = 1, .num_to_keep = 0});
  {
    CheckpointTrainer trainer(options);
    ASSERT_THAT(trainer.Train({.epochs = 3}), IsOk());
  }
  options.name = "another";
  options.checkpoint.resume = temp_ / "run/checkpoint_000002";
  {
    CheckpointTrainer trainer(options);
    const auto result = trainer.Train({.epochs = 5});
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(Losses(*result), losses);
    EXPECT_EQ(Bytes(trainer.PullWeights()), weights);
    EXPECT_EQ(HistoryEpochs(temp_ / "another"), UpTo(5));
  }
  // Once more, as after a kill: it goes on with its own.
  {
    CheckpointTrainer trainer(options);
    const auto result = trainer.Train({.epochs = 5});
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(result->checkpoint, temp_ / "another/checkpoint_000005");
    EXPECT_EQ(HistoryEpochs(temp_ / "another"), UpTo(5));
  }
  // And before it has one, with either way to say it.
  for (const std::string& resume :
       {options.checkpoint.resume, std::string("auto")}) {
    fs::remove_all(temp_ / "another");
    CheckpointTrainer ends(options);
    ends.at_epoch_end = [](int) { throw std::runtime_error("ends here"); };
    EXPECT_THROW((void)ends.Train({.epochs = 5}), std::runtime_error);
    EXPECT_FALSE(fs::exists(temp_ / "another/checkpoint_000003"));
    EXPECT_EQ(HistoryEpochs(temp_ / "another"), UpTo(2));
    TrainerOptions again = options;
    again.checkpoint.resume = resume;
    CheckpointTrainer trainer(again);
    const auto result = trainer.Train({.epochs = 5});
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(Losses(*result), losses);
    EXPECT_EQ(Bytes(trainer.PullWeights()), weights);
  }
  // Epochs that did not begin there are not touched.
  {
    TrainerOptions own = options;
    own.name = "own";
    own.checkpoint.resume = "never";
    {
      CheckpointTrainer trainer(own);
      ASSERT_THAT(trainer.Train({.epochs = 1}), IsOk());
    }
    own.checkpoint.resume = options.checkpoint.resume;
    CheckpointTrainer trainer(own);
    EXPECT_THAT(trainer.Train({.epochs = 5}),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         HasSubstr("of another run")));
    EXPECT_EQ(HistoryEpochs(temp_ / "own"), UpTo(1));
  }
  // In its own run, what was later makes way.
  options.name = "run";
  CheckpointTrainer trainer(options);
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->warnings,
              ElementsAre(HasSubstr("checkpoint_000003.superseded")));
  EXPECT_EQ(HistoryEpochs(temp_ / "run"), UpTo(3));
  for (const char* const name :
       {"run/checkpoint_000003.superseded", "run/checkpoint_000003.superseded/",
        "another/../run/checkpoint_000003.superseded//"}) {
    options.checkpoint.resume = temp_ / name;
    EXPECT_THAT(
        CheckpointTrainer(options).Train({.epochs = 3}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("give it back its name, checkpoint_000003")));
  }
  EXPECT_TRUE(fs::exists(temp_ / "run/checkpoint_000003.superseded"));
  options.checkpoint.resume = temp_ / "run";
  EXPECT_THAT(CheckpointTrainer(options).Train({.epochs = 3}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the folder of a run")));
  options.checkpoint.resume = temp_ / "nowhere";
  CheckpointTrainer nowhere(options);
  EXPECT_THAT(
      nowhere.Train({.epochs = 3}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("checkpoint.resume")));
}

TEST_F(TrainerCheckpointTest, WhatIsAlreadyTrainedIsNotTrainedAgain) {
  const TrainerOptions options =
      Options({.frequency = 1, .at_end = true, .resume = "auto"});
  std::string weights;
  for (const bool again : {false, true}) {
    CheckpointTrainer trainer(options);
    int epochs = 0;
    trainer.at_epoch_end = [&](int) { ++epochs; };
    const auto result = trainer.Train({.epochs = 3});
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(epochs, again ? 0 : 3);
    EXPECT_THAT(result->history, SizeIs(3));
    EXPECT_EQ(result->checkpoint, temp_ / "run/checkpoint_000003");
    if (again) {
      EXPECT_EQ(Bytes(trainer.PullWeights()), weights);
    }
    weights = Bytes(trainer.PullWeights());
  }
}

TEST_F(TrainerCheckpointTest, WhatCannotBeIsAnErrorBeforeAnythingIsMade) {
  auto train = [](const TrainerOptions& options) {
    return CheckpointTrainer(options).Train({.epochs = 2}).status();
  };
  const auto invalid = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(train(Options({.frequency = -1})), invalid("frequency"));
  EXPECT_THAT(train(Options({.num_to_keep = -1})), invalid("num_to_keep"));
  EXPECT_THAT(train(Options({.resume = ""})), invalid("resume"));
  EXPECT_THAT(train(Options({.num_to_keep = 2})), invalid("has no effect"));
  EXPECT_THAT(train(Options({.score_metric = "loss"})),
              invalid("score_metric has no effect"));
  TrainerOptions options = Options({.resume = "auto"});
  options.name.clear();
  EXPECT_THAT(train(options), invalid("without a name"));
  options.storage_path.clear();
  EXPECT_THAT(train(options), invalid("need storage_path"));
  EXPECT_THAT(temp_.List(), IsEmpty());

  QuadraticTrainer without(Options({.frequency = 1}), {});
  EXPECT_THAT(without.Train({.epochs = 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("SaveCheckpoint()")));
  EXPECT_THAT(temp_.List(), IsEmpty());

  ASSERT_THAT(train(Options({.at_end = true})), IsOk());
  options = Options({.resume = "auto"});
  options.num_workers = 3;
  EXPECT_THAT(train(options), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("is of 2 workers")));
  options.num_workers = 2;
  options.server_options.num_shards = 2;
  EXPECT_THAT(train(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("the parameter server"),
                             HasSubstr("with 1 shard (num_shards), and this "
                                       "one has 2"))));
  options.server_options.num_shards = 1;
  options.sync_strategy = "average";
  options.strategy_options = {};
  EXPECT_THAT(train(options), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("the strategy momentum")));
}

TEST_F(TrainerCheckpointTest, ADamagedOneIsPassedOverAndTrainedAgain) {
  const auto [losses, weights] = Undisturbed(5);
  {
    CheckpointTrainer trainer(Options({.frequency = 1}));
    ASSERT_THAT(trainer.Train({.epochs = 4}), IsOk());
  }
  fs::resize_file(temp_ / "run/checkpoint_000004/worker_001/training.pt", 9);
  fs::resize_file(temp_ / "run/checkpoint_000003/server.state", 9);
  CheckpointTrainer trainer(Options({.frequency = 1, .resume = "auto"}));
  const auto result = trainer.Train({.epochs = 5});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->warnings,
              AllOf(Contains(HasSubstr("checkpoint_000004 is damaged")),
                    Contains(HasSubstr("checkpoint_000003 is damaged"))));
  EXPECT_EQ(Losses(*result), losses);
  EXPECT_EQ(Bytes(trainer.PullWeights()), weights);
}

// RLIMIT_FSIZE stands for a disk that is full for two epochs.
TEST_F(TrainerCheckpointTest, AFullDiskIsAWarningAndNotTheEnd) {
  CheckpointTrainer trainer(Options({.frequency = 1}));
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  trainer.at_epoch_end = [&](int epoch) {
    struct rlimit limit = before;
    if (epoch == 1 || epoch == 2) limit.rlim_cur = 1'000'000;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  };
  // It is written beside the next epoch, whose end lifts the limit.
  const auto result = trainer.Train(
      {.epochs = 5, .config = {{"bytes", 2'000'000}, {"epoch_seconds", 0.3}}});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(5));
  EXPECT_THAT(result->warnings,
              Contains(AllOf(HasSubstr("a checkpoint could not be written"),
                             HasSubstr("checkpoint_000002.part"),
                             HasSubstr("File too large"),
                             HasSubstr("given up for a newer one"))));
  EXPECT_EQ(result->checkpoint, temp_ / "run/checkpoint_000005");
  EXPECT_THAT(ReadCheckpoint(result->checkpoint), IsOk());
  EXPECT_FALSE(fs::exists(temp_ / "run/checkpoint_000002"));
}

TEST_F(TrainerCheckpointTest,
       OneThatCannotBeWrittenIsTriedWhileTrainingGoesOn) {
  CheckpointTrainer trainer(Options({.frequency = 3}));
  const std::string path = temp_ / "run/checkpoint_000003";
  trainer.at_epoch_end = [&](int epoch) {
    if (epoch == 2) {
      ASSERT_TRUE(fs::create_directories(path + "/in_the_way"));
    }
    if (epoch == 3) {
      EXPECT_FALSE(ReadCheckpoint(path).ok());
    }
    if (epoch == 4) {
      fs::remove_all(path);
      EXPECT_TRUE(Eventually([&] { return ReadCheckpoint(path).ok(); },
                             absl::Seconds(60)));
    }
  };
  const auto result = trainer.Train({.epochs = 5});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(5));
  EXPECT_THAT(result->warnings, IsEmpty());
  EXPECT_EQ(result->checkpoint, path);
  EXPECT_THAT(trainer.checkpoints, SizeIs(1));
}

// The driver is killed again and again, at whatever moment, and each second
// time in the middle of a write; each time the last checkpoint is whole, and
// the end is what it would have been.
TEST_F(TrainerCheckpointTest, AKilledDriverGoesOnToTheSameEnd) {
  constexpr int kKills = 12;
  std::mt19937 random(20'261);
  const std::string folder = temp_ / "run";
  const std::string value =
      absl::StrCat(nodes_->address(), " ", temp_.path(), " 1000000 0 8000000");
  int epochs = 0;  // In the last checkpoint.
  int in_a_write = 0;
  for (int i = 0; i < kKills; ++i) {
    SCOPED_TRACE(i);
    DriverProcess driver(kDriverVariable, value);
    const std::string next =
        absl::StrCat(folder, "/", CheckpointName(epochs + 2));
    ASSERT_TRUE(
        Eventually([&] { return fs::exists(next); }, absl::Seconds(60)));
    if (i % 2 == 0) {
      absl::SleepFor(absl::Microseconds(random() % 60'000));
    } else {
      ASSERT_TRUE(
          Eventually([&] { return HasPart(folder); }, absl::Seconds(60)));
    }
    driver.Signal(SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(driver.Wait())) << "it ended by itself";
    in_a_write += HasPart(folder);

    for (const std::string& name : CheckpointsIn(folder)) {
      EXPECT_THAT(ReadCheckpoint(folder + "/" + name), IsOk());
    }
    const auto last = *EpochsOfCheckpointName(CheckpointsIn(folder).back());
    EXPECT_GE(last, epochs + 2);
    epochs = last;
  }
  EXPECT_GT(in_a_write, 0) << "no kill came in the middle of a write";
  const auto [losses, weights] = Undisturbed(epochs + 3);
  CheckpointTrainer trainer(Options({.frequency = 1, .resume = "auto"}));
  const auto result = trainer.Train({.epochs = epochs + 3});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(Losses(*result), losses);
  EXPECT_EQ(Bytes(trainer.PullWeights()), weights);
  EXPECT_EQ(HistoryEpochs(folder), UpTo(epochs + 3));
}

TEST_F(TrainerCheckpointTest, SigtermIsACheckpointAndACleanEnd) {
  const std::string folder = temp_ / "run";
  int status = 0;
  {
    DriverProcess driver(
        kDriverVariable,
        absl::StrCat(nodes_->address(), " ", temp_.path(), " 1000000 0.05 0"));
    ASSERT_TRUE(
        Eventually([&] { return fs::exists(folder + "/checkpoint_000002"); },
                   absl::Seconds(60)));
    driver.Signal(SIGTERM);
    status = driver.Wait();
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const Json json = Json::parse(*ReadFile(folder + "/result.json"));
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(json["stopped_by"], "SIGTERM");
  const int epochs = json["epochs"];
  EXPECT_GE(epochs, 2);
  EXPECT_EQ(HistoryEpochs(folder), UpTo(epochs));
  EXPECT_EQ(json["checkpoint"], folder + "/" + CheckpointName(epochs));

  // Wherever it stopped between synchronisations.
  const auto [losses, weights] = Undisturbed(epochs + 3);
  CheckpointTrainer trainer(Options({.resume = "auto"}));
  const auto result = trainer.Train({.epochs = epochs + 3});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->stopped_by, "");
  EXPECT_EQ(Losses(*result), losses);
  EXPECT_EQ(Bytes(trainer.PullWeights()), weights);
}

// The epoch would take a minute.
TEST_F(TrainerCheckpointTest, TheSecondSignalEndsItAtOnce) {
  const absl::Time start = absl::Now();
  DriverProcess driver(kDriverVariable, absl::StrCat(nodes_->address(), " ",
                                                     temp_.path(), " 10 60 0"));
  ASSERT_TRUE(Eventually([&] { return fs::exists(temp_ / "epoch_begun"); },
                         absl::Seconds(60)));
  driver.Signal(SIGINT);
  // Pending signals of one kind are one.
  ASSERT_TRUE(Eventually([&] {
    driver.Signal(SIGTERM);
    return !driver.Runs();
  }));
  EXPECT_TRUE(WIFSIGNALED(driver.Wait()));
  EXPECT_LT(absl::Now() - start, absl::Seconds(50));
  EXPECT_FALSE(fs::exists(temp_ / "run/result.json"));
}

// Checkpoints after each epoch, of which 3 stay, and goes on from the last.
int Drive(const std::string& what) {
  const std::vector<std::string> parts = absl::StrSplit(what, ' ');
  auto cluster = Cluster::Connect({.address = parts.at(0)});
  if (!cluster.ok()) return 1;
  CheckpointTrainer trainer(
      TwoWorkers(*cluster, parts.at(1),
                 {.frequency = 1, .num_to_keep = 3, .resume = "auto"}));
  trainer.at_epoch_start = [&](int) {
    std::ofstream(parts.at(1) + "/epoch_begun") << "yes";
  };
  const auto result =
      trainer.Train({.epochs = std::stoi(parts.at(2)),
                     .config = {{"epoch_seconds", std::stod(parts.at(3))},
                                {"bytes", std::stoi(parts.at(4))}}});
  return result.ok() ? 0 : 2;
}

}  // namespace
}  // namespace miniray::train

SPAWNED_PROCESS_TEST_MAIN(miniray::train::kDriverVariable,
                          miniray::train::Drive)
