// TorchTrainer whose group grows while it trains: nodes are processes of their
// own, which join and are killed.

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/functions/walk.h"
#include "tests/train/node_process.h"
#include "train/data/dataset.h"
#include "train/functions/torch_trainer.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Reports from one checkpoint to the next, where there are few of them. The
// look for room, once a second, comes within kLookReports of them.
constexpr int kSaveEvery = 10;
constexpr int kLookReports = 8;
constexpr double kEpochSeconds = 0.25;

// Does something at a report or a checkpoint, and keeps what it hears.
class AtEvent : public Callback {
 public:
  // Both may be empty.
  std::function<void(TrainContext&, const EpochResult&)> at_report;
  std::function<void(TrainContext&, const CheckpointInfo&)> at_checkpoint;

  void OnResume(TrainContext& context,
                const std::vector<EpochResult>& history) override {
    resumed_after.push_back(history.size());
    num_workers.push_back(context.num_workers());
  }
  void OnEpochEnd(TrainContext& context, const EpochResult& result) override {
    if (at_report) at_report(context, result);
  }
  void OnCheckpoint(TrainContext& context,
                    const CheckpointInfo& info) override {
    if (at_checkpoint) at_checkpoint(context, info);
  }

  std::vector<size_t> resumed_after;
  std::vector<int> num_workers;  // Then.
};

// Numbers of ranks, one after the other.
std::vector<size_t> Sizes(const Result& result) {
  std::vector<size_t> sizes;
  for (const EpochResult& epoch : result.history) {
    const size_t size = epoch.per_worker.size();
    if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
  }
  return sizes;
}

// Each report once, and each rank going on from its own last x, a new one from
// that of the rank modulo their number; in the result and on the disk.
void ExpectWhole(const Result& result) {
  std::vector<double> x;
  for (size_t i = 0; i < result.history.size(); ++i) {
    SCOPED_TRACE(i);
    const EpochResult& epoch = result.history[i];
    EXPECT_EQ(epoch.epoch, i);
    const std::vector<double> before = x.empty() ? std::vector<double>{0} : x;
    x.clear();
    for (size_t rank = 0; rank < epoch.per_worker.size(); ++rank) {
      const double start = before[rank % before.size()];
      x.push_back(start + (4 + 4 * static_cast<double>(rank) - start) / 2);
      EXPECT_EQ(epoch.per_worker[rank].at("epoch"), i);
      EXPECT_EQ(epoch.per_worker[rank].at("rank"), rank);
      EXPECT_EQ(epoch.per_worker[rank].at("x"), x.back());
    }
  }
  if (result.path.empty()) return;
  const std::string text = *ReadFile(result.path + "/history.jsonl");
  const std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  EXPECT_THAT(lines, SizeIs(result.history.size()));
}

constexpr int kRows = 20000;  // Of the values 0, 1, 2, ...

// Reads the data set "rows" from where the checkpoint ends, with a report of
// what this rank has seen for each batch, or ("to_end") one for all.
void ReadAlong(Context& ctx) {
  DatasetShard shard = ctx.GetDatasetShard("rows");
  if (const CheckpointFiles* files = ctx.GetCheckpoint()) {
    const absl::Status restored = shard.Restore(files->at("data"));
    if (!restored.ok()) throw DatasetError(restored);
  }
  const bool to_end = ctx.config<int64_t>("to_end") != 0;
  Metrics seen = {{"count", 0}, {"sum", 0}, {"squares", 0}};
  for (const Batch& batch :
       shard.IterBatches({.batch_size = 4, .tail = Tail::kUneven})) {
    const at::Tensor x = batch["x"].to(at::kDouble);
    seen["count"] += static_cast<double>(batch.size());
    seen["sum"] += x.sum().item<double>();
    seen["squares"] += x.square().sum().item<double>();
    if (to_end) continue;
    absl::SleepFor(absl::Milliseconds(20));  // So that nodes join in time.
    ctx.Report(std::exchange(seen, {{"count", 0}, {"sum", 0}, {"squares", 0}}),
               {{"data", shard.State()}});
  }
  if (to_end) ctx.Report(std::move(seen));
}
MINIRAY_TRAIN_FUNC(ReadAlong);

class TorchTrainerGrowthTest : public ::testing::Test {
 protected:
  // One node of one CPU in this process.
  TorchTrainerGrowthTest()
      : nodes_({.node_cpus = {1}, .head = {.lease = absl::Seconds(2)}}) {}

  // Another one, in a process of its own.
  std::unique_ptr<NodeProcess> Node(const std::string& name, int cpus) {
    const auto num_ever = [&] { return nodes_.head().GetState().nodes_size(); };
    const int before = num_ever();
    auto node =
        std::make_unique<NodeProcess>(nodes_.address(), temp_ / name, cpus);
    EXPECT_TRUE(
        Eventually([&] { return num_ever() > before; }, absl::Seconds(30)));
    return node;
  }

  TorchTrainerOptions Options(int min, int max) {
    TorchTrainerOptions options;
    options.config = {{"epochs", 2000}, {"epoch_seconds", 0.02}};
    options.scaling.num_workers = {min, max};
    options.run.name = "run";
    options.run.storage_path = temp_.path();
    options.run.callbacks = {events_};
    options.cluster = nodes_.Connect();
    return options;
  }
  // With slow epochs and few checkpoints.
  TorchTrainerOptions SlowOptions(int min, int max, int epochs = 2000) {
    TorchTrainerOptions options = Options(min, max);
    options.config = {{"epochs", epochs},
                      {"epoch_seconds", kEpochSeconds},
                      {"save_every", kSaveEvery}};
    return options;
  }

  int NumActors(v1::ActorState state) {
    const v1::GetClusterStateResponse cluster = nodes_.head().GetState();
    return static_cast<int>(std::count_if(cluster.actors().begin(),
                                          cluster.actors().end(),
                                          [state](const v1::ActorInfo& actor) {
                                            return actor.state() == state;
                                          }));
  }
  void AwaitAlive(int num_actors) {
    EXPECT_TRUE(Eventually(
        [&] { return NumActors(v1::ACTOR_STATE_ALIVE) == num_actors; },
        absl::Seconds(30)));
  }
  // The next training shall not be given a place on a node that is gone.
  void AwaitNodes(int num_nodes) {
    EXPECT_TRUE(Eventually(
        [&] {
          const v1::GetClusterStateResponse cluster = nodes_.head().GetState();
          return num_nodes ==
                 std::count_if(cluster.nodes().begin(), cluster.nodes().end(),
                               [](const v1::NodeInfo& node) {
                                 return node.state() == v1::NODE_STATE_ALIVE;
                               });
        },
        absl::Seconds(30)));
  }
  // Ends training some reports after there are so many ranks.
  static void StopBehind(size_t num_ranks, TrainContext& context,
                         const EpochResult& result, int* first) {
    if (result.per_worker.size() != num_ranks) return;
    if (*first < 0) *first = result.epoch;
    if (result.epoch >= *first + 3) context.RequestStop();
  }

  TempFolder temp_;
  TestCluster nodes_;
  std::shared_ptr<AtEvent> events_ = std::make_shared<AtEvent>();
};

TEST_F(TorchTrainerGrowthTest, ItGrowsWhileItTrainsWhenANodeJoins) {
  for (const bool has_folder : {true, false}) {
    SCOPED_TRACE(has_folder);
    TorchTrainerOptions options = Options(1, 4);
    if (!has_folder) options.run.storage_path.clear();
    std::unique_ptr<NodeProcess> node;
    int grown = -1;
    *events_ = AtEvent();
    events_->at_report = [&](TrainContext& context, const EpochResult& result) {
      if (result.epoch == 2) node = Node(has_folder ? "a" : "b", 2);
      StopBehind(3, context, result, &grown);
    };
    TorchTrainer trainer(Walk, options);
    const auto result = trainer.Fit();
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(Sizes(*result), ElementsAre(1, 3));
    ExpectWhole(*result);
    EXPECT_THAT(result->history, SizeIs(grown + 4));
    // It is no failure, which none would be allowed here, and nothing to warn
    // of.
    EXPECT_THAT(result->failures, IsEmpty());
    EXPECT_THAT(result->warnings, IsEmpty());
    EXPECT_THAT(events_->resumed_after, ElementsAre(grown));
    EXPECT_THAT(events_->num_workers, ElementsAre(3));
    const auto of_rank_0 = [&](int epoch, const char* metric) {
      return result->history.at(epoch).per_worker.at(0).at(metric);
    };
    EXPECT_EQ(of_rank_0(grown - 1, "generation"), 0);
    EXPECT_EQ(of_rank_0(grown, "generation"), 1);
    EXPECT_EQ(of_rank_0(grown - 1, "pid"), of_rank_0(grown, "pid"));
    // Who still waits for room is ended too.
    EXPECT_TRUE(Eventually([&] {
      return NumActors(v1::ACTOR_STATE_ALIVE) +
                 NumActors(v1::ACTOR_STATE_PENDING) ==
             0;
    }));
    node.reset();
    AwaitNodes(1);
  }
}

TEST_F(TorchTrainerGrowthTest, WhatIsLeftOfADataSetIsDealtToThoseThatCame) {
  TorchTrainerOptions options = Options(1, 3);
  options.config = {{"to_end", 0}};
  const absl::StatusOr<Dataset> rows = Dataset::FromTensors(
      {{"x", at::arange(kRows, at::kFloat)}}, {.rows_per_block = 8});
  ASSERT_THAT(rows, IsOk());
  options.datasets = {{"rows", *rows}};
  std::unique_ptr<NodeProcess> node;
  int grown = -1;
  events_->at_report = [&](TrainContext& context, const EpochResult& result) {
    if (result.epoch == 2) node = Node("a", 2);
    StopBehind(3, context, result, &grown);
  };
  TorchTrainer trainer(ReadAlong, options);
  auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(Sizes(*result), ElementsAre(1, 3));
  // The rest, by as many as there are now.
  events_->at_report = nullptr;
  options.config.Set("to_end", 1);
  TorchTrainer rest(ReadAlong, options);
  result = rest.Fit();
  ASSERT_THAT(result, IsOk());
  ASSERT_GT(result->history.size(), static_cast<size_t>(grown));
  Metrics total;
  for (const EpochResult& epoch : result->history) {
    for (const Metrics& rank : epoch.per_worker) {
      for (const auto& [name, value] : rank) total[name] += value;
    }
  }
  constexpr double kLast = kRows - 1;
  EXPECT_EQ(total["count"], kRows);
  EXPECT_EQ(total["sum"], kLast * kRows / 2);
  EXPECT_EQ(total["squares"], kLast * kRows * (2 * kLast + 1) / 6);
}

TEST_F(TorchTrainerGrowthTest, ItGrowsAgainAndShrinksWhenANodeIsLost) {
  TorchTrainerOptions options = Options(1, 3);
  options.run.failure.max_failures = -1;
  options.run.abort_timeout = absl::Milliseconds(500);
  std::unique_ptr<NodeProcess> first, second;
  int grown = -1;
  int shrunk = -1;
  events_->at_report = [&](TrainContext& context, const EpochResult& result) {
    const size_t size = result.per_worker.size();
    if (result.epoch == 2) first = Node("a", 1);
    if (size == 2 && shrunk < 0 && second == nullptr) second = Node("b", 1);
    if (size == 3 && grown < 0) {
      grown = result.epoch;
      first.reset();  // Killed.
      second.reset();
    }
    if (size == 1 && grown >= 0 && shrunk < 0) shrunk = result.epoch;
    if (shrunk >= 0 && result.epoch >= shrunk + 2) context.RequestStop();
  };
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(Sizes(*result), ElementsAre(1, 2, 3, 1));
  ExpectWhole(*result);
  EXPECT_THAT(result->failures, Not(IsEmpty()));
}

TEST_F(TorchTrainerGrowthTest, ItGrowsBehindACheckpointOnly) {
  TorchTrainerOptions options = Options(1, 2);
  options.config.Set("save_every", 7);
  std::unique_ptr<NodeProcess> node;
  int grown = -1;
  events_->at_report = [&](TrainContext& context, const EpochResult& result) {
    if (result.epoch == 8) node = Node("a", 1);
    StopBehind(2, context, result, &grown);
  };
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(Sizes(*result), ElementsAre(1, 2));
  ExpectWhole(*result);
  EXPECT_EQ(grown % 7, 0);
}

TEST_F(TorchTrainerGrowthTest, WithoutCheckpointsItNeverGrowsNorAsksForRoom) {
  TorchTrainerOptions options = Options(1, 2);
  options.config.Set("save_every", 1'000'000);
  std::unique_ptr<NodeProcess> node;
  events_->at_report = [&](TrainContext& context, const EpochResult& result) {
    if (result.epoch == 2) node = Node("a", 1);
    if (result.epoch == 80) context.RequestStop();
  };
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(Sizes(*result), ElementsAre(1));
  EXPECT_THAT(result->history, SizeIs(81));
  // The rank's, and no other that waited; one of each Start found no room.
  EXPECT_THAT(nodes_.head().GetState().actors(), SizeIs(2));
}

TEST_F(TorchTrainerGrowthTest, ItDoesNotGrowFromACheckpointThatIsNotWritten) {
  TorchTrainerOptions options = Options(1, 2);
  std::unique_ptr<NodeProcess> node;
  int alive_at = -1;
  int first_written = -1;
  int grown = -1;
  events_->at_report = [&](TrainContext& context, const EpochResult& result) {
    if (result.epoch == 2) node = Node("a", 1);
    if (alive_at < 0 && NumActors(v1::ACTOR_STATE_ALIVE) == 2) {
      alive_at = result.epoch;
    }
    // More than a second of reports after the other one is there.
    const bool in_the_way =
        result.epoch >= 2 && (alive_at < 0 || result.epoch < alive_at + 100);
    if (in_the_way) {
      const std::string path =
          absl::StrCat(temp_ / "run", "/", CheckpointName(result.epoch + 1));
      ASSERT_TRUE(std::filesystem::create_directories(path + "/in_the_way"));
    } else if (result.epoch >= 2 && first_written < 0) {
      first_written = result.epoch;
    }
    StopBehind(2, context, result, &grown);
  };
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(Sizes(*result), ElementsAre(1, 2));
  ExpectWhole(*result);
  EXPECT_EQ(grown, first_written + 1);
  EXPECT_THAT(result->warnings,
              Contains(AllOf(HasSubstr("could not be written"),
                             HasSubstr("given up for a newer one"))));
  EXPECT_THAT(result->failures, IsEmpty());
}

// The further worker is ready, and the next report has a checkpoint: who asks
// for the end gets it there.
TEST_F(TorchTrainerGrowthTest, WhoEndsTrainingAtThatReportEndsIt) {
  for (const std::string by :
       {"callback", "checkpoint", "signal", "function"}) {
    SCOPED_TRACE(by);
    const int last = 2 * kSaveEvery - 1;
    TorchTrainerOptions options =
        SlowOptions(1, 2, by == "function" ? last + 1 : 2000);
    options.run.name = by;
    std::unique_ptr<NodeProcess> node;
    *events_ = AtEvent();
    events_->at_report = [&](TrainContext& context, const EpochResult& result) {
      if (result.epoch == last - kLookReports - 1) {
        node = Node(by, 1);
        AwaitAlive(2);
      }
      if (result.epoch == last && by == "callback") context.RequestStop();
    };
    // Of this checkpoint it comes before the next report, if it is waited for
    // because the group is about to grow.
    events_->at_checkpoint = [&](TrainContext& context,
                                 const CheckpointInfo& info) {
      if (info.epochs != last + 1) return;
      if (by == "checkpoint") context.RequestStop();
      if (by == "signal") raise(SIGTERM);
    };
    TorchTrainer trainer(Walk, options);
    const auto result = trainer.Fit();
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->history, SizeIs(last + 1));
    EXPECT_THAT(Sizes(*result), ElementsAre(1));
    ExpectWhole(*result);
    EXPECT_THAT(result->failures, IsEmpty());
    EXPECT_EQ(result->stopped_by, by == "signal" ? "SIGTERM" : "");
    EXPECT_EQ(result->checkpoint,
              temp_ / absl::StrCat(by, "/", CheckpointName(last + 1)));
    if (by == "function") {
      // It has grown, and the function found that it was done.
      EXPECT_THAT(events_->resumed_after, ElementsAre(last + 1));
      EXPECT_THAT(events_->num_workers, ElementsAre(2));
    } else {
      EXPECT_THAT(events_->resumed_after, IsEmpty());
    }
    node.reset();
    AwaitNodes(1);
  }
}

TEST_F(TorchTrainerGrowthTest, ARankThatDiesAtThatReportIsOneFailure) {
  std::unique_ptr<NodeProcess> base = Node("base", 1);
  TorchTrainerOptions options = SlowOptions(2, 3);
  options.run.failure.max_failures = 1;
  const int last = 2 * kSaveEvery - 1;
  std::unique_ptr<NodeProcess> node;
  int grown = -1;
  events_->at_report = [&](TrainContext& context, const EpochResult& result) {
    if (result.epoch == last - kLookReports - 1) {
      node = Node("a", 1);
      AwaitAlive(3);
    }
    if (result.epoch == last) {
      const double pid = result.per_worker.at(1).at("pid");
      EXPECT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
    }
    StopBehind(3, context, result, &grown);
  };
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  ExpectWhole(*result);
  EXPECT_THAT(Sizes(*result), ElementsAre(2, 3));
  EXPECT_EQ(grown, last + 1);
  ASSERT_THAT(result->failures, SizeIs(1));
  EXPECT_EQ(result->failures[0].epoch, last + 1);
  EXPECT_EQ(result->failures[0].worker_id, 1);
  EXPECT_THAT(events_->resumed_after, ElementsAre(last + 1));
}

// The head may not know of it yet.
TEST_F(TorchTrainerGrowthTest, AFurtherWorkerThatIsLostBeforeThatIsNoFailure) {
  TorchTrainerOptions options = SlowOptions(1, 2);
  const int last = 2 * kSaveEvery - 1;
  std::unique_ptr<NodeProcess> node;
  int grown = -1;
  events_->at_report = [&](TrainContext& context, const EpochResult& result) {
    if (result.epoch == last - kLookReports - 1) {
      node = Node("a", 1);
      AwaitAlive(2);
    }
    if (result.epoch == last) node.reset();  // Killed.
    if (result.epoch == last + 2) node = Node("b", 1);
    StopBehind(2, context, result, &grown);
  };
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(Sizes(*result), ElementsAre(1, 2));
  ExpectWhole(*result);
  EXPECT_GT(grown, last + 2);
  EXPECT_THAT(result->failures, IsEmpty());
  EXPECT_EQ(result->metrics().at("generation"), 1);
}

}  // namespace
}  // namespace miniray::train

NODE_PROCESS_TEST_MAIN()
