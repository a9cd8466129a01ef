// max_workers: nodes join and leave, and each epoch has every sample once.

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/node_process.h"
#include "train/data_parallel_trainer.h"
#include "train/sharding.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kItems = 12;

}  // namespace

// Its model is one number x, to which an epoch adds the number of its samples.
class ElasticWorker {
 public:
  // has_data: or it cannot load its share.
  ElasticWorker(int worker_id, bool has_data)
      : worker_id_(worker_id), has_data_(has_data) {}

  absl::Status LoadDataShard(int shard_id, int num_shards) {
    if (shard_id != worker_id_) return absl::InternalError("another's shard");
    if (!has_data_) return absl::NotFoundError("no data on this node");
    MR_ASSIGN_OR_RETURN(items_, ShardItems(kItems, shard_id, num_shards, {}));
    return absl::OkStatus();
  }
  // "items": a digit to the base of 8 for each item, how often it was trained
  // on. "before": x at the beginning.
  Metrics TrainEpoch(int epoch) {
    const double before = x_;
    double items = 0;
    for (const int64_t item : items_) {
      items += std::pow(8, static_cast<double>(item));
    }
    absl::SleepFor(absl::Milliseconds(20));
    x_ += static_cast<float>(items_.size());
    return {{"items", items}, {"before", before}, {"epoch", epoch}};
  }
  // A sample a step; means over the samples.
  Metrics TrainSteps(int epoch, int64_t first, int64_t count) {
    const double before = x_;
    const auto size = static_cast<int64_t>(items_.size());
    const int64_t steps = std::clamp<int64_t>(size - first, 0, count);
    double items = 0;
    for (int64_t i = first; i < first + steps; ++i) {
      items += std::pow(8, static_cast<double>(items_[i]));
    }
    absl::SleepFor(absl::Milliseconds(2));
    x_ += static_cast<float>(steps);
    return {{"items", items / static_cast<double>(std::max<int64_t>(steps, 1))},
            {"before", before},
            {"epoch", epoch},
            {"samples", static_cast<double>(steps)},
            {"steps", static_cast<double>(steps)}};
  }
  absl::StatusOr<Metrics> EvaluateShard(int shard, int num_shards) {
    if (shard != worker_id_) return absl::InternalError("another's shard");
    MR_ASSIGN_OR_RETURN(const std::vector<int64_t> items,
                        ShardItems(kItems, shard, num_shards, {}));
    return Metrics{{"x", x_}, {"samples", static_cast<double>(items.size())}};
  }
  NamedTensors GetWeights() { return {{"x", ps::Floats({x_})}}; }
  void SetWeights(const NamedTensors& weights) {
    x_ = weights.at(0).second.item<float>();
  }
  CheckpointFiles SaveCheckpoint() {
    return {{"x", absl::StrCat(x_)}, {"worker", absl::StrCat(worker_id_)}};
  }
  absl::Status LoadCheckpoint(const CheckpointFiles& files) {
    loaded_ = files.at("worker");
    if (absl::SimpleAtof(files.at("x"), &x_)) return absl::OkStatus();
    return absl::InvalidArgumentError(files.at("x"));
  }
  std::string Loaded() { return loaded_; }

 private:
  const int worker_id_;
  const bool has_data_;
  float x_ = -1000;  // As a newcomer that got no weights has it.
  std::vector<int64_t> items_;
  std::string loaded_;
};
MINIRAY_ACTOR(ElasticWorker, Constructor<int, bool>,
              &ElasticWorker::LoadDataShard, &ElasticWorker::TrainEpoch,
              &ElasticWorker::TrainSteps, &ElasticWorker::EvaluateShard,
              &ElasticWorker::GetWeights, &ElasticWorker::SetWeights,
              &ElasticWorker::SaveCheckpoint, &ElasticWorker::LoadCheckpoint,
              &ElasticWorker::Loaded);

class ElasticTrainer : public DataParallelTrainer<ElasticWorker> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

  // With the workers that the epoch was trained by; true ends training.
  std::function<bool(int epoch, int num_workers)> at_epoch_end;
  int without_data = -1;  // A worker's id.

 protected:
  absl::StatusOr<ActorHandle<ElasticWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    return cluster().CreateActor<ElasticWorker>(
        WorkerOptions(worker_id), worker_id, worker_id != without_data);
  }
  void OnEpochEnd(int epoch, const EpochResult& result) override {
    EXPECT_THAT(result.per_worker, SizeIs(num_workers()));
    if (at_epoch_end && at_epoch_end(epoch, num_workers())) RequestStop();
  }
};

namespace {

// How many workers each epoch had; and in each all samples were trained on
// once, by workers that began with the same weights: those that the epoch
// before has come to, x plus the mean number of samples. Between two
// synchronisations, `interval` epochs, the number is the same, and each has its
// own weights.
// in_pieces: epochs of TrainSteps, one sample each.
std::vector<size_t> Check(const std::vector<EpochResult>& history,
                          size_t interval = 1, bool in_pieces = false) {
  std::vector<size_t> sizes;
  double x = -1000;
  for (size_t i = 0; i < history.size(); ++i) {
    const std::vector<Metrics>& workers = history[i].per_worker;
    EXPECT_EQ(history[i].epoch, static_cast<int>(i));
    const double share = kItems / static_cast<double>(workers.size());
    const size_t since_sync = i % interval;
    if (since_sync > 0) {
      EXPECT_EQ(workers.size(), sizes.back());
    }
    // In pieces, "before" is the mean of those of all steps.
    const double before = x + share * static_cast<double>(since_sync) +
                          (in_pieces ? (share - 1) / 2 : 0);
    double items = 0;
    for (const Metrics& worker : workers) {
      EXPECT_NEAR(worker.at("before"), before, 1e-3) << "epoch " << i;
      EXPECT_EQ(worker.at("epoch"), static_cast<double>(i));
      items += in_pieces ? std::round(worker.at("items") * worker.at("samples"))
                         : worker.at("items");
    }
    EXPECT_EQ(items, (std::pow(8, kItems) - 1) / 7) << "epoch " << i;
    sizes.push_back(workers.size());
    if (since_sync + 1 < interval) continue;
    x += share * static_cast<double>(interval);
    const Metrics& metrics = history[i].metrics;
    if (!metrics.contains("eval/samples")) continue;
    EXPECT_EQ(metrics.at("eval/samples"), kItems);
    EXPECT_NEAR(metrics.at("eval/x"), x, 1e-3);
  }
  return sizes;
}

std::vector<size_t> Runs(std::vector<size_t> sizes) {
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

class ElasticTest : public ::testing::Test {
 protected:
  // One node of one CPU in this process.
  ElasticTest()
      : nodes_({.node_cpus = {1}, .head = {.lease = absl::Seconds(2)}}) {}

  // Another one, in a process of its own.
  std::unique_ptr<NodeProcess> Node(const std::string& name, int cpus) {
    const auto num_ever = [&] { return nodes_.head().GetState().nodes_size(); };
    const int before = num_ever();
    auto node =
        std::make_unique<NodeProcess>(nodes_.address(), temp_ / name, cpus);
    EXPECT_TRUE(Eventually([&] { return num_ever() > before; }));
    return node;
  }

  TrainerOptions Options(int num_workers, int max_workers) {
    TrainerOptions options = {.num_workers = num_workers,
                              .max_workers = max_workers,
                              .cluster = nodes_.Connect()};
    options.failure.max_failures = -1;
    return options;
  }

  size_t NumNodes() {
    size_t count = 0;
    const v1::GetClusterStateResponse state = nodes_.head().GetState();
    for (const v1::NodeInfo& node : state.nodes()) {
      if (node.state() == v1::NODE_STATE_ALIVE) ++count;
    }
    return count;
  }

  TempFolder temp_;
  TestCluster nodes_;
};

TEST_F(ElasticTest, BeginsWithWhatIsThereAndGrowsWhenANodeJoins) {
  ElasticTrainer trainer(Options(1, 4));
  std::unique_ptr<NodeProcess> node;
  int grown = -1;
  trainer.at_epoch_end = [&](int epoch, int num_workers) {
    if (epoch == 1) node = Node("a", 2);
    if (num_workers == 3 && grown < 0) grown = epoch;
    return grown >= 0 && epoch >= grown + 3;
  };
  const auto result = trainer.Train({.epochs = 2000});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->failures, IsEmpty());
  const std::vector<size_t> sizes = Check(result->history);
  EXPECT_EQ(sizes[0], 1);
  EXPECT_EQ(sizes[1], 1);
  EXPECT_EQ(sizes.back(), 3);
  EXPECT_THAT(trainer.workers(), SizeIs(3));
  EXPECT_EQ(trainer.num_workers(), 3);
}

// The one with the worker that is never to be missed, or the other one.
TEST_F(ElasticTest, ShrinksWhenANodeLeavesAndGrowsAgain) {
  for (const FailurePolicy policy :
       {FailurePolicy::kGroup, FailurePolicy::kHeal}) {
    const std::string name = absl::StrCat("run", static_cast<int>(policy));
    SCOPED_TRACE(name);
    std::unique_ptr<NodeProcess> node = Node(name + "a", 2);
    TrainerOptions options = Options(1, 3);
    options.storage_path = temp_.path();
    options.name = name;
    options.checkpoint.frequency = 1;
    options.failure.policy = policy;
    ElasticTrainer trainer(options);
    std::unique_ptr<NodeProcess> next;
    int shrunk = -1;
    int grown = -1;
    trainer.at_epoch_end = [&](int epoch, int num_workers) {
      if (epoch == 3) node.reset();  // Killed.
      if (num_workers == 1 && shrunk < 0) shrunk = epoch;
      if (shrunk >= 0 && epoch == shrunk + 2 && next == nullptr) {
        next = Node(name + "b", 1);
      }
      if (next != nullptr && num_workers == 2 && grown < 0) grown = epoch;
      return grown >= 0 && epoch >= grown + 2;
    };
    const auto result = trainer.Train({.epochs = 2000});
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->failures, Not(IsEmpty()));
    EXPECT_THAT(Runs(Check(result->history)), ElementsAre(3, 1, 2));
    trainer.Shutdown();
    next.reset();
    EXPECT_TRUE(Eventually([&] { return NumNodes() == 1; }));
  }
}

TEST_F(ElasticTest, WithoutACheckpointFewerBeginAnew) {
  std::unique_ptr<NodeProcess> node = Node("a", 2);
  ElasticTrainer trainer(Options(1, 3));
  std::vector<int> first_epochs;  // With how many workers each was trained.
  trainer.at_epoch_end = [&](int epoch, int num_workers) {
    if (epoch == 0) first_epochs.push_back(num_workers);
    if (epoch == 3) node.reset();  // Killed.
    return false;
  };
  const auto result = trainer.Train({.epochs = 6});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(first_epochs, ElementsAre(3, 1));
  EXPECT_THAT(Check(result->history), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(result->failures, Not(IsEmpty()));
}

// Synchronised every second epoch, and every step; and evaluated then, each
// worker its share. A checkpoint is one of a synchronised epoch, so that what
// is trained again is what it was.
TEST_F(ElasticTest, GrowsAndShrinksWhereverItIsSynchronised) {
  for (const bool in_pieces : {false, true}) {
    const std::string name = in_pieces ? "pieces" : "interval";
    SCOPED_TRACE(name);
    const size_t interval = in_pieces ? 1 : 2;
    TrainerOptions options = Options(1, 3);
    options.storage_path = temp_.path();
    options.name = name;
    options.failure.policy = FailurePolicy::kHeal;
    options.sync_interval = static_cast<int>(interval);
    options.evaluate_every = options.sync_interval;
    options.checkpoint.frequency = options.sync_interval;
    if (in_pieces) options.sync_every = 1;
    ElasticTrainer trainer(options);
    std::unique_ptr<NodeProcess> node;
    int grown = -1;
    int shrunk = -1;
    trainer.at_epoch_end = [&](int epoch, int num_workers) {
      if (epoch == 2) node = Node(name, 2);
      if (num_workers == 3 && grown < 0) grown = epoch;
      if (grown >= 0 && epoch == grown + 3) node.reset();  // Killed.
      if (grown >= 0 && num_workers == 1 && shrunk < 0) shrunk = epoch;
      return shrunk >= 0 && epoch >= shrunk + 4;
    };
    const auto result = trainer.Train({.epochs = 2000});
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->failures, Not(IsEmpty()));
    EXPECT_THAT(Runs(Check(result->history, interval, in_pieces)),
                ElementsAre(1, 3, 1));
    EXPECT_TRUE(result->history[interval - 1].metrics.contains("eval/x"));
    trainer.Shutdown();
    EXPECT_TRUE(Eventually([&] { return NumNodes() == 1; }));
  }
}

// The room that a crashed worker leaves goes to who replaces it, and not to the
// newcomer that waits for some.
TEST_F(ElasticTest, ACrashedWorkerIsReplacedWhileANewcomerWaits) {
  std::unique_ptr<NodeProcess> node = Node("a", 2);
  TrainerOptions options = Options(1, 4);
  options.failure.policy = FailurePolicy::kHeal;
  ElasticTrainer trainer(options);
  trainer.at_epoch_end = [&](int epoch, int num_workers) {
    EXPECT_EQ(num_workers, 3);
    if (epoch != 2) return false;
    const v1::GetClusterStateResponse state = nodes_.head().GetState();
    EXPECT_EQ(std::count_if(state.actors().begin(), state.actors().end(),
                            [](const v1::ActorInfo& actor) {
                              return actor.state() == v1::ACTOR_STATE_PENDING;
                            }),
              1);
    const int64_t pid = nodes_.Info(trainer.workers()[2]).pid();
    EXPECT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
    return false;
  };
  const auto result = trainer.Train({.epochs = 6});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->failures, SizeIs(1));
  EXPECT_THAT(Runs(Check(result->history)), ElementsAre(3));
  EXPECT_THAT(result->history, SizeIs(6));
}

TEST_F(ElasticTest, ANewcomerWithoutDataIsLeftOut) {
  ElasticTrainer trainer(Options(1, 3));
  trainer.without_data = 2;
  std::unique_ptr<NodeProcess> node;
  int left_out = -1;
  trainer.at_epoch_end = [&](int epoch, int num_workers) {
    if (epoch == 1) node = Node("a", 2);
    // The last to leave is not dead at once.
    const v1::GetClusterStateResponse state = nodes_.head().GetState();
    const auto dead =
        std::count_if(state.actors().begin(), state.actors().end(),
                      [](const v1::ActorInfo& actor) {
                        return actor.state() == v1::ACTOR_STATE_DEAD;
                      });
    if (node != nullptr && dead >= 3 && left_out < 0) left_out = epoch;
    return left_out >= 0 && epoch >= left_out + 3;
  };
  const auto result = trainer.Train({.epochs = 2000});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->failures, IsEmpty());
  EXPECT_LT(result->history.size(), 2000);
  EXPECT_THAT(Runs(Check(result->history)), ElementsAre(1));
  EXPECT_THAT(result->warnings,
              ElementsAre(AllOf(HasSubstr("goes on with 1 workers"),
                                HasSubstr("no data on this node"))));
}

TEST_F(ElasticTest, BelowTheLeastNumberTrainSaysWhatIsMissing) {
  std::unique_ptr<NodeProcess> node = Node("a", 2);
  TrainerOptions options = Options(2, 3);
  options.start_timeout = absl::Seconds(15);
  ElasticTrainer trainer(options);
  trainer.at_epoch_end = [&](int epoch, int num_workers) {
    EXPECT_EQ(num_workers, 3);
    if (epoch == 1) node.reset();
    return false;
  };
  EXPECT_THAT(std::string(trainer.Train({.epochs = 2000}).status().message()),
              HasSubstr("the workers have no places"));
}

// Worker i gets the files of worker i modulo those that there are.
TEST_F(ElasticTest, ACheckpointOfAnotherNumberOfWorkersIsGoneOnWith) {
  std::unique_ptr<NodeProcess> node = Node("a", 2);
  TrainerOptions options = Options(2, 0);
  options.storage_path = temp_.path();
  options.name = "run";
  options.checkpoint.frequency = 1;
  {
    ElasticTrainer trainer(options);
    ASSERT_THAT(trainer.Train({.epochs = 2}), IsOk());
  }
  options.checkpoint.resume = "auto";
  options.num_workers = 1;
  {
    ElasticTrainer trainer(options);
    EXPECT_THAT(trainer.Train({.epochs = 4}).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("is of 2 workers"),
                               HasSubstr("max_workers"))));
  }
  options.max_workers = 3;
  ElasticTrainer more(options);
  const auto result = more.Train({.epochs = 4});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(Check(result->history), ElementsAre(2, 2, 3, 3));
  EXPECT_EQ(more.workers()[0].Call<&ElasticWorker::Loaded>().Get().value(),
            "0");
  EXPECT_EQ(more.workers()[1].Call<&ElasticWorker::Loaded>().Get().value(),
            "1");
  EXPECT_EQ(more.workers()[2].Call<&ElasticWorker::Loaded>().Get().value(),
            "0");
}

TEST_F(ElasticTest, OptionsThatCannotBe) {
  const auto refused = [&](const TrainerOptions& options,
                           const std::string& text) {
    ElasticTrainer trainer(options);
    EXPECT_THAT(trainer.Train({}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused(Options(2, 1), "max_workers must be at least num_workers, 2");
  TrainerOptions options = Options(1, 2);
  options.failure.max_failures = 0;
  refused(options, "max_workers needs failure.max_failures above 0");
  options = Options(1, 2);
  options.placement = PlacementStrategy::kStrictSpread;
  refused(options, "a strict placement does not go with max_workers");
  options = Options(1, 2);
  options.server_options.num_shards = 2;
  refused(options, "max_workers is set, and server_options");
  options = Options(1, 2);
  options.server_options.min_workers = 2;
  refused(options, "min_workers is 2, and num_workers 1");
  options = Options(1, 2);
  options.sync_strategy = "weighted";
  ElasticTrainer trainer(options);
  EXPECT_THAT(
      trainer.SetWorkerWeight(0, 2),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("NumSamples")));
  EXPECT_EQ(nodes_.head().GetState().actors_size(), 0);
}

}  // namespace
}  // namespace miniray::train

NODE_PROCESS_TEST_MAIN()
