// FailurePolicy::kGroup: whatever was lost, the training comes to what it would
// have come to, bit for bit.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
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
#include "proto/head.pb.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/checkpoint_worker.h"
#include "tests/train/node_process.h"
#include "tests/train/recovery_worker.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::json;

constexpr int kEpochs = 6;

std::string Bytes(const absl::StatusOr<NamedTensors>& weights) {
  std::string bytes;
  if (!weights.ok()) return weights.status().ToString();
  for (const auto& [name, tensor] : *weights) {
    bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  }
  return bytes;
}

// What a training comes to.
struct Outcome {
  std::vector<double> losses;  // Of all epochs, those of each worker too.
  std::string weights;

  Outcome() = default;
  Outcome(const Result& result, const CheckpointTrainer& trainer)
      : weights(Bytes(trainer.PullWeights())) {
    for (const EpochResult& epoch : result.history) {
      losses.push_back(epoch.metrics.at("loss"));
      for (const Metrics& worker : epoch.per_worker) {
        losses.push_back(worker.at("loss"));
      }
    }
  }
  bool operator==(const Outcome&) const = default;
};

// Each epoch once, in the result and on the disk.
void ExpectAllEpochsOnce(const Result& result) {
  ASSERT_THAT(result.history, SizeIs(kEpochs));
  const std::string text = *ReadFile(result.path + "/history.jsonl");
  const std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(kEpochs));
  for (int i = 0; i < kEpochs; ++i) {
    EXPECT_EQ(result.history[i].epoch, i);
    EXPECT_EQ(result.history[i].metrics.at("epoch"), i);
    EXPECT_EQ(Json::parse(lines[i])["epoch"], i);
  }
}

class TrainerRecoveryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {4}});
    cluster_ = new Cluster(nodes_->Connect());
    CheckpointTrainer trainer(Workers());
    const auto result = trainer.Train({.epochs = kEpochs});
    undisturbed_ = new Outcome(*result, trainer);
  }
  static void TearDownTestSuite() {
    delete undisturbed_;
    delete cluster_;
    delete nodes_;
  }

  // Momentum on the server has a state of its own, too; workers are apart for
  // an epoch of two.
  static TrainerOptions Workers() {
    TrainerOptions options;
    options.num_workers = 2;
    options.cluster = *cluster_;
    options.sync_interval = 2;
    options.sync_strategy = "momentum";
    options.strategy_options = {{"momentum", 0.5}};
    return options;
  }
  TrainerOptions Options(FailureConfig failure, const std::string& name = "run",
                         int frequency = 1) {
    TrainerOptions options = Workers();
    options.storage_path = temp_.path();
    options.name = name;
    options.checkpoint.frequency = frequency;
    options.failure = failure;
    return options;
  }

  std::string fault_file() const { return temp_.path() + "/fault"; }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  static Outcome* undisturbed_;
  TempFolder temp_;
};

TestCluster* TrainerRecoveryTest::nodes_ = nullptr;
Cluster* TrainerRecoveryTest::cluster_ = nullptr;
Outcome* TrainerRecoveryTest::undisturbed_ = nullptr;

TEST_F(TrainerRecoveryTest, AGroupGoesOnFromTheLastCheckpointBitForBit) {
  for (const std::string how : {"throw", "kill", "hang"}) {
    for (const int frequency : {1, 2, 0}) {  // 0: from the start.
      const std::string name = absl::StrCat(how, frequency);
      SCOPED_TRACE(name);
      CheckpointTrainer trainer(
          Options({.max_failures = 1,
                   .hang_timeout = how == "hang" ? absl::Seconds(5)
                                                 : absl::InfiniteDuration()},
                  name, frequency));
      bool first = true;
      trainer.at_epoch_start = [&](int epoch) {
        if (epoch != 3 || !std::exchange(first, false)) return;
        EXPECT_THAT(WriteFileAtomically(fault_file(), how), IsOk());
      };
      const auto result = trainer.Train(
          {.epochs = kEpochs, .config = {{"fault_file", fault_file()}}});
      ASSERT_THAT(result, IsOk());
      ExpectAllEpochsOnce(*result);
      EXPECT_EQ(Outcome(*result, trainer), *undisturbed_);
      ASSERT_THAT(result->failures, SizeIs(1));
      EXPECT_EQ(result->failures[0].epoch, 3);
      EXPECT_THAT(std::string(result->failures[0].error.message()),
                  HasSubstr(how == "throw"  ? "loss went up"
                            : how == "kill" ? "signal 9"
                                            : "not returned for 5s"));
    }
  }
}

TEST_F(TrainerRecoveryTest, AKilledParameterServerIsMadeAnewWithItsState) {
  for (const FailurePolicy policy :
       {FailurePolicy::kGroup, FailurePolicy::kHeal}) {
    CheckpointTrainer trainer(
        Options({.max_failures = 1, .policy = policy},
                absl::StrCat("run", static_cast<int>(policy))));
    bool first = true;
    trainer.at_epoch_start = [&](int epoch) {
      if (epoch != 3 || !std::exchange(first, false)) return;
      const int64_t pid = nodes_->Info(trainer.parameter_server()).pid();
      EXPECT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
    };
    const auto result = trainer.Train({.epochs = kEpochs});
    ASSERT_THAT(result, IsOk());
    ExpectAllEpochsOnce(*result);
    EXPECT_EQ(Outcome(*result, trainer), *undisturbed_);
    EXPECT_THAT(result->failures, SizeIs(1));
  }
}

// One of three shards, or the one in front. The others do not live on.
TEST_F(TrainerRecoveryTest, AKilledShardIsMadeAnewWithAllOthers) {
  for (const bool in_front : {true, false}) {
    TrainerOptions options =
        Options({.max_failures = 1}, in_front ? "front" : "shard");
    options.server_options.num_shards = 3;
    CheckpointTrainer trainer(options);
    std::vector<AnyActorHandle> servers;
    trainer.at_epoch_start = [&](int epoch) {
      if (epoch != 3 || !servers.empty()) return;
      servers = *trainer.parameter_server()
                     .Call<&ps::ParameterServer::GetShards>()
                     .Get();
      servers.push_back(trainer.parameter_server());
      const AnyActorHandle& victim = servers[in_front ? 3 : 1];
      EXPECT_EQ(kill(static_cast<pid_t>(nodes_->Info(victim).pid()), SIGKILL),
                0);
    };
    const auto result = trainer.Train({.epochs = kEpochs});
    ASSERT_THAT(result, IsOk());
    ExpectAllEpochsOnce(*result);
    EXPECT_EQ(Outcome(*result, trainer), *undisturbed_);
    EXPECT_THAT(result->failures, SizeIs(1));
    ASSERT_THAT(servers, SizeIs(4));
    for (const AnyActorHandle& server : servers) {
      EXPECT_TRUE(Eventually([&] {
        return nodes_->Info(server).state() == v1::ACTOR_STATE_DEAD;
      }));
    }
  }
}

// With a folder a shard comes back by itself, and the trainer need not know.
TEST_F(TrainerRecoveryTest, AShardWithAStateFolderComesBack) {
  TrainerOptions options = Options({});
  options.server_options.num_shards = 2;
  options.server_options.state_dir = temp_.path() + "/state";
  CheckpointTrainer trainer(options);
  bool first = true;
  trainer.at_epoch_start = [&](int epoch) {
    if (epoch != 3 || !std::exchange(first, false)) return;
    const auto shards = *trainer.parameter_server()
                             .Call<&ps::ParameterServer::GetShards>()
                             .Get();
    const int64_t pid = nodes_->Info(shards[0]).pid();
    EXPECT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
  };
  const auto result = trainer.Train({.epochs = kEpochs});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(Outcome(*result, trainer), *undisturbed_);
}

// Its state_dir has what came after the checkpoint, which is not gone on with.
// There is one folder in its place at a time, and in the end what it has is in
// state_dir, beside what else there is.
TEST_F(TrainerRecoveryTest, AStateFolderDoesNotBringLaterWeightsBack) {
  for (const int64_t num_shards : {1, 2}) {
    SCOPED_TRACE(absl::StrCat(num_shards, " shards"));
    const std::string run = absl::StrCat("run", num_shards);
    TrainerOptions options = Options({.max_failures = 2}, run, 0);
    const std::string parent = absl::StrCat(temp_.path(), "/servers", run);
    options.server_options.num_shards = num_shards;
    options.server_options.state_dir = parent + "/state";
    // What the last ones made is there in the end all the same.
    options.server_options.save_every = num_shards == 1 ? 4 : 1;
    const auto folders = [&] {
      std::vector<std::string> names;
      for (const auto& entry : std::filesystem::directory_iterator(parent)) {
        names.push_back(entry.path().filename());
      }
      std::sort(names.begin(), names.end());
      return names;
    };
    CheckpointTrainer trainer(options);
    int failures = 0;
    trainer.at_epoch_start = [&](int epoch) {
      if (epoch != 5 || failures == 2) return;
      ++failures;
      EXPECT_THAT(WriteFileAtomically(fault_file(), "throw"), IsOk());
    };
    std::filesystem::create_directories(options.server_options.state_dir);
    EXPECT_THAT(WriteFileAtomically(parent + "/state/notes", "mine"), IsOk());
    const auto result = trainer.Train(
        {.epochs = kEpochs, .config = {{"fault_file", fault_file()}}});
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->failures, SizeIs(2));
    EXPECT_EQ(Outcome(*result, trainer), *undisturbed_);
    EXPECT_THAT(folders(), ElementsAre("state", StartsWith("state.anew-")));
    trainer.Shutdown();
    EXPECT_THAT(folders(), ElementsAre("state"));
    EXPECT_THAT(ReadFile(parent + "/state/notes"), IsOkAndHolds("mine"));
    const auto next = ps::CreateParameterServer(*cluster_, "momentum",
                                                options.strategy_options,
                                                options.server_options);
    ASSERT_THAT(next, IsOk());
    EXPECT_EQ(Bytes(next->Call<&ps::ParameterServer::PullWeights>().Get()),
              undisturbed_->weights);
    EXPECT_THAT(ps::StopParameterServer(*next), IsOk());
    // Another training does not go on with it.
    TrainerOptions others = Workers();
    others.server_options = options.server_options;
    CheckpointTrainer another(others);
    const auto trained = another.Train({.epochs = kEpochs});
    ASSERT_THAT(trained, IsOk());
    EXPECT_EQ(Outcome(*trained, another), *undisturbed_);
  }
}

// Epochs of 50 ms; the moment is anywhere in them, in a synchronisation, or
// while a checkpoint is taken.
TEST_F(TrainerRecoveryTest, AWorkerKilledAtAnyMoment) {
  const double usual_loss = undisturbed_->losses[3 * (kEpochs - 1)];
  for (int seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int victim = static_cast<int>(random() % 2);
    const absl::Duration moment = absl::Milliseconds(random() % 350);
    const bool heals = seed % 2 == 1;
    CheckpointTrainer trainer(Options(
        {.max_failures = 3,
         .policy = heals ? FailurePolicy::kHeal : FailurePolicy::kGroup},
        absl::StrCat("run", seed)));
    std::thread killer;
    trainer.at_epoch_start = [&](int epoch) {
      if (killer.joinable()) return;
      const int64_t pid =
          *trainer.workers()[victim].Call<&CheckpointWorker::Pid>().Get();
      killer = std::thread([=] {
        absl::SleepFor(moment);
        kill(static_cast<pid_t>(pid), SIGKILL);
      });
    };
    const auto result =
        trainer.Train({.epochs = kEpochs, .config = {{"epoch_seconds", 0.05}}});
    killer.join();
    ASSERT_THAT(result, IsOk());
    ExpectAllEpochsOnce(*result);
    if (!heals) {
      EXPECT_EQ(Outcome(*result, trainer), *undisturbed_);
    } else {
      EXPECT_NEAR(result->history.back().metrics.at("loss"), usual_loss,
                  0.25 * usual_loss);
    }
  }
}

// A stop that was asked for does not come earlier because of a failure.
TEST_F(TrainerRecoveryTest, AStopAskedForBeforeAFailureKeepsItsEpoch) {
  class StopAfterFour : public Callback {
   public:
    void OnEpochStart(TrainContext& context, int epoch) override {
      if (epoch == 3) context.RequestStop();
    }
  };
  TrainerOptions options = Options({.max_failures = 1}, "run", 2);
  options.callbacks = {std::make_shared<StopAfterFour>()};
  CheckpointTrainer trainer(options);
  bool first = true;
  trainer.at_epoch_start = [&](int epoch) {
    if (epoch != 3 || !std::exchange(first, false)) return;
    EXPECT_THAT(WriteFileAtomically(fault_file(), "throw"), IsOk());
  };
  const auto result = trainer.Train(
      {.epochs = kEpochs, .config = {{"fault_file", fault_file()}}});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(4));
  EXPECT_THAT(result->failures, SizeIs(1));
}

// Nor does one that is asked for because of it.
TEST_F(TrainerRecoveryTest, AStopAskedForByAFailureKeepsItsEpoch) {
  for (const int frequency : {2, 0}) {
    auto observer = std::make_shared<FailureObserver>();
    observer->stops = true;
    TrainerOptions options =
        Options({.max_failures = 1}, absl::StrCat("run", frequency), frequency);
    options.callbacks = {observer};
    CheckpointTrainer trainer(options);
    bool first = true;
    trainer.at_epoch_start = [&](int epoch) {
      if (epoch != 3 || !std::exchange(first, false)) return;
      EXPECT_THAT(WriteFileAtomically(fault_file(), "throw"), IsOk());
    };
    const auto result = trainer.Train(
        {.epochs = kEpochs, .config = {{"fault_file", fault_file()}}});
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->history, SizeIs(4));
    EXPECT_THAT(result->failures, SizeIs(1));
    // Callbacks hear where it goes on, from the start as well.
    EXPECT_THAT(observer->resumed_epochs,
                ElementsAre(static_cast<size_t>(frequency)));
  }
}

// A node with one of the workers; another one comes once it is lost.
TEST_F(TrainerRecoveryTest, ANodeIsLost) {
  for (const FailurePolicy policy :
       {FailurePolicy::kGroup, FailurePolicy::kHeal}) {
    TestCluster nodes({.node_cpus = {1}, .head = {.lease = absl::Seconds(2)}});
    const std::string name = absl::StrCat("run", static_cast<int>(policy));
    auto node =
        std::make_unique<NodeProcess>(nodes.address(), temp_ / (name + "a"));
    std::unique_ptr<NodeProcess> next;
    auto observer = std::make_shared<FailureObserver>();
    observer->at_failure = [&](const WorkerFailure&) {
      if (next != nullptr) return;
      next =
          std::make_unique<NodeProcess>(nodes.address(), temp_ / (name + "b"));
    };
    TrainerOptions options =
        Options({.max_failures = 3, .policy = policy}, name);
    options.cluster = nodes.Connect();
    options.callbacks = {observer};
    CheckpointTrainer trainer(options);
    trainer.at_epoch_start = [&](int epoch) {
      if (epoch != 3 || node == nullptr) return;
      node->Signal(SIGKILL);
      node->Wait();
      node.reset();
    };
    const auto result = trainer.Train({.epochs = kEpochs});
    ASSERT_THAT(result, IsOk());
    ExpectAllEpochsOnce(*result);
    EXPECT_FALSE(result->failures.empty());
    if (policy == FailurePolicy::kGroup) {
      EXPECT_EQ(Outcome(*result, trainer), *undisturbed_);
    }
    trainer.Shutdown();
  }
}

// Recovery waits for a place, for a minute; a signal ends it.
TEST_F(TrainerRecoveryTest, ASignalEndsRecoveryAtOnce) {
  TestCluster nodes({.node_cpus = {1}, .head = {.lease = absl::Seconds(2)}});
  auto node = std::make_unique<NodeProcess>(nodes.address(), temp_ / "a");
  std::thread signaller;
  auto observer = std::make_shared<FailureObserver>();
  observer->at_failure = [&](const WorkerFailure&) {
    if (signaller.joinable()) return;
    signaller = std::thread([&] {
      // The parameter server and two workers, and then again: they wait.
      EXPECT_TRUE(Eventually(
          [&] { return nodes.head().GetState().actors_size() >= 6; }));
      kill(getpid(), SIGTERM);
    });
  };
  TrainerOptions options = Options({.max_failures = -1});
  options.cluster = nodes.Connect();
  options.callbacks = {observer};
  CheckpointTrainer trainer(options);
  trainer.at_epoch_start = [&](int epoch) {
    if (epoch == 3) node.reset();  // Killed.
  };
  const absl::Time start = absl::Now();
  const auto result = trainer.Train({.epochs = kEpochs});
  signaller.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(45));
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(StartsWith("epoch 4/6: "), HasSubstr("; then: ")));
  EXPECT_EQ(trainer.last_result().stopped_by, "SIGTERM");
  EXPECT_THAT(trainer.last_result().failures, SizeIs(1));
  EXPECT_TRUE(trainer.workers().empty());
  // What it was ended for goes on later.
  node = std::make_unique<NodeProcess>(nodes.address(), temp_ / "b");
  options.checkpoint.resume = "auto";
  options.callbacks.clear();
  CheckpointTrainer next(options);
  const auto resumed = next.Train({.epochs = kEpochs});
  ASSERT_THAT(resumed, IsOk());
  ExpectAllEpochsOnce(*resumed);
  EXPECT_EQ(Outcome(*resumed, next), *undisturbed_);
  next.Shutdown();
}

TEST_F(TrainerRecoveryTest, WithoutPlaceForNewWorkersTrainSaysWhatIsMissing) {
  for (const FailurePolicy policy :
       {FailurePolicy::kGroup, FailurePolicy::kHeal}) {
    TestCluster nodes({.node_cpus = {1}, .head = {.lease = absl::Seconds(2)}});
    const std::string name = absl::StrCat("run", static_cast<int>(policy));
    auto node =
        std::make_unique<NodeProcess>(nodes.address(), temp_ / (name + "node"));
    TrainerOptions options =
        Options({.max_failures = -1, .policy = policy}, name, 2);
    options.cluster = nodes.Connect();
    options.start_timeout = absl::Seconds(15);
    CheckpointTrainer trainer(options);
    trainer.at_epoch_start = [&](int epoch) {
      if (epoch == 3) node.reset();  // Killed.
    };
    const auto result = trainer.Train({.epochs = kEpochs});
    EXPECT_THAT(
        std::string(result.status().message()),
        AllOf(StartsWith("epoch 4/6: "),
              HasSubstr("the workers have no places, which they get together"),
              HasSubstr("CPU"), HasSubstr("num_workers")));
    // What came after the checkpoint stands until training goes on from it.
    EXPECT_THAT(trainer.last_result().history, SizeIs(3));
    const std::string text =
        *ReadFile(trainer.last_result().path + "/history.jsonl");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  }
}

}  // namespace
}  // namespace miniray::train

NODE_PROCESS_TEST_MAIN()
