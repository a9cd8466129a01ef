// Which checkpoints of a run are kept, and which one is gone on with.

#include "train/checkpoint_store.h"

#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

// After `epochs` epochs, with this metric in each.
Checkpoint After(int epochs, double loss = 0, size_t bytes = 10) {
  Checkpoint checkpoint{.workers = {{{"model.pt", std::string(bytes, 'w')}}}};
  for (int i = 0; i < epochs; ++i) {
    checkpoint.history.push_back({.epoch = i, .metrics = {{"loss", loss}}});
  }
  return checkpoint;
}

absl::Status Write(CheckpointStore& store, Checkpoint checkpoint) {
  store.Write(std::move(checkpoint));
  auto outcome = store.Wait();
  if (!outcome.has_value()) return absl::InternalError("no outcome");
  EXPECT_THAT(outcome->warnings, IsEmpty());
  return outcome->written.status();
}

Result Told(const CheckpointStore& store) {
  Result result;
  store.Tell(&result);
  return result;
}

// Epochs of those that are kept, the best first.
std::vector<int> ByWorth(const CheckpointStore& store) {
  std::vector<int> epochs;
  for (const KeptCheckpoint& kept : Told(store).best_checkpoints) {
    epochs.push_back(kept.epochs);
  }
  return epochs;
}

TEST(CheckpointStoreTest, TheNewestStay) {
  TempFolder temp;
  CheckpointStore store(temp.path(), {.num_to_keep = 2});
  EXPECT_EQ(Told(store).checkpoint, "");
  EXPECT_FALSE(store.Wait().has_value());
  for (const int epochs : {2, 4, 6}) {
    ASSERT_THAT(Write(store, After(epochs)), IsOk());
  }
  EXPECT_THAT(temp.List(),
              ElementsAre("checkpoint_000004", "checkpoint_000006"));
  EXPECT_EQ(Told(store).checkpoint, temp / "checkpoint_000006");
  EXPECT_EQ(Told(store).best_checkpoint, "");
  EXPECT_THAT(ByWorth(store), ElementsAre(6, 4));
}

TEST(CheckpointStoreTest, TheBestStayAndTheLast) {
  const double losses[] = {5, 2, NAN, 3, 4};
  for (const bool greatest : {false, true}) {
    TempFolder temp;
    CheckpointStore store(
        temp.path(),
        {.num_to_keep = 2,
         .score_metric = "loss",
         .score_order = greatest ? ScoreOrder::kMax : ScoreOrder::kMin});
    for (int i = 0; i < 5; ++i) {
      ASSERT_THAT(Write(store, After(i + 1, losses[i])), IsOk());
    }
    EXPECT_EQ(Told(store).checkpoint, temp / "checkpoint_000005");
    if (greatest) {
      EXPECT_EQ(Told(store).best_checkpoint, temp / "checkpoint_000001");
      EXPECT_THAT(ByWorth(store), ElementsAre(1, 5));
      EXPECT_THAT(temp.List(),
                  ElementsAre("checkpoint_000001", "checkpoint_000005"));
    } else {
      EXPECT_EQ(Told(store).best_checkpoint, temp / "checkpoint_000002");
      EXPECT_THAT(ByWorth(store), ElementsAre(2, 4, 5));
      EXPECT_EQ(Told(store).best_checkpoints[1].metrics.at("loss"), 3);
      EXPECT_THAT(temp.List(),
                  ElementsAre("checkpoint_000002", "checkpoint_000004",
                              "checkpoint_000005"));
    }
  }
}

TEST(CheckpointStoreTest, WithOneToKeepTheBestStaysBesideTheLast) {
  TempFolder temp;
  CheckpointStore store(temp.path(),
                        {.num_to_keep = 1, .score_metric = "loss"});
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(Write(store, After(i + 1, i)), IsOk());
  }
  EXPECT_THAT(temp.List(),
              ElementsAre("checkpoint_000001", "checkpoint_000004"));
}

TEST(CheckpointStoreTest, ADamagedOneIsPassedOverWithAWarning) {
  TempFolder temp;
  {
    CheckpointStore store(temp.path(), {});
    for (const int epochs : {1, 2, 3}) {
      ASSERT_THAT(Write(store, After(epochs)), IsOk());
    }
  }
  fs::resize_file(temp / "checkpoint_000003/worker_000/model.pt", 3);
  fs::remove(temp / "checkpoint_000002/manifest.json");
  fs::create_directory(temp / "checkpoint_000004.part");
  CheckpointStore store(temp.path(), {});
  std::vector<std::string> warnings;
  const auto last = store.ReadLast(&warnings);
  ASSERT_THAT(last, IsOk());
  ASSERT_TRUE(last->has_value());
  EXPECT_EQ((*last)->epochs(), 1);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("checkpoint_000003 is damaged"),
                                    HasSubstr("checkpoint_000002 is damaged")));

  // Their places are free for what is trained anew.
  ASSERT_THAT(store.BeginAt(1, &warnings), IsOk());
  EXPECT_THAT(temp.List(),
              ElementsAre("checkpoint_000001", "checkpoint_000002.superseded",
                          "checkpoint_000003.superseded"));
  EXPECT_EQ(Told(store).checkpoint, temp / "checkpoint_000001");
  ASSERT_THAT(Write(store, After(2)), IsOk());
  EXPECT_EQ(Told(store).checkpoint, temp / "checkpoint_000002");
}

TEST(CheckpointStoreTest, WhatHasBeenSetAsideBeforeStays) {
  TempFolder temp;
  CheckpointStore store(temp.path(), {});
  ASSERT_THAT(Write(store, After(1)), IsOk());
  std::vector<std::string> warnings;
  for (const int time : {1, 2, 3}) {
    ASSERT_THAT(Write(store, After(2, time)), IsOk());
    ASSERT_THAT(store.BeginAt(1, &warnings), IsOk());
  }
  EXPECT_THAT(temp.List(),
              ElementsAre("checkpoint_000001", "checkpoint_000002.superseded",
                          "checkpoint_000002.superseded.2",
                          "checkpoint_000002.superseded.3"));
  EXPECT_THAT(warnings,
              ElementsAre(EndsWith("checkpoint_000002.superseded now"),
                          EndsWith("checkpoint_000002.superseded.2 now"),
                          EndsWith("checkpoint_000002.superseded.3 now")));
  const auto second = ReadCheckpoint(temp / "checkpoint_000002.superseded.2");
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->history.back().metrics.at("loss"), 2);
}

TEST(CheckpointStoreTest, OneThatCannotBeReadNowIsNotPassedOver) {
  TempFolder temp;
  CheckpointStore store(temp.path(), {});
  for (const int epochs : {1, 2}) {
    ASSERT_THAT(Write(store, After(epochs)), IsOk());
  }
  // For root, too: a loop of links is no file that is missing.
  const std::string file = temp / "checkpoint_000002/worker_000/model.pt";
  fs::rename(file, temp / "away");
  fs::create_symlink(file, file);
  std::vector<std::string> warnings;
  const auto last = store.ReadLast(&warnings);
  EXPECT_FALSE(last.ok());
  EXPECT_THAT(last.status().message(), HasSubstr(file));
  EXPECT_FALSE(absl::IsDataLoss(last.status())) << last.status();
  EXPECT_THAT(warnings, IsEmpty());
  fs::remove(file);
  fs::rename(temp / "away", file);
  EXPECT_EQ((*store.ReadLast(&warnings))->epochs(), 2);
  // Nor is one of a version that is to come.
  std::ofstream(temp / "checkpoint_000002/manifest.json") << R"({"format": 2})";
  EXPECT_THAT(store.ReadLast(&warnings),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("of format 2")));
  EXPECT_THAT(store.BeginAt(2, &warnings),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_THAT(temp.List(),
              ElementsAre("checkpoint_000001", "checkpoint_000002"));
}

TEST(CheckpointStoreTest, IfAllAreDamagedNothingBeginsAnewByItself) {
  TempFolder temp;
  CheckpointStore store(temp.path(), {});
  for (const int epochs : {1, 2}) {
    ASSERT_THAT(Write(store, After(epochs)), IsOk());
    fs::resize_file(temp / (CheckpointName(epochs) + "/worker_000/model.pt"),
                    3);
  }
  std::vector<std::string> warnings;
  EXPECT_THAT(store.ReadLast(&warnings),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("none of the 2 checkpoints")));
}

TEST(CheckpointStoreTest, AnEmptyFolderHasNone) {
  TempFolder temp;
  CheckpointStore store(temp.path(), {});
  std::vector<std::string> warnings;
  const auto last = store.ReadLast(&warnings);
  ASSERT_THAT(last, IsOk());
  EXPECT_FALSE(last->has_value());
  EXPECT_THAT(warnings, IsEmpty());
}

// RLIMIT_FSIZE stands for a full disk: so many bytes fit into a file.
TEST(CheckpointStoreTest, AFullDiskLeavesNothingHalfAndTheNextOneIsTried) {
  TempFolder temp;
  CheckpointStore store(temp.path(), {});
  ASSERT_THAT(Write(store, After(1)), IsOk());
  struct rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const struct rlimit before = limit;
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  limit.rlim_cur = 50'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status full = Write(store, After(2, 0, 100'000));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted,
                             HasSubstr("worker_000/model.pt")));
  EXPECT_THAT(temp.List(), ElementsAre("checkpoint_000001"));
  EXPECT_EQ(Told(store).checkpoint, temp / "checkpoint_000001");
  ASSERT_THAT(Write(store, After(3, 0, 100'000)), IsOk());
  EXPECT_EQ(Told(store).checkpoint, temp / "checkpoint_000003");
}

// Counts what the log says of tries that failed.
class FailedTries : public google::LogSink {
 public:
  FailedTries() { google::AddLogSink(this); }
  ~FailedTries() override { google::RemoveLogSink(this); }

  void send(google::LogSeverity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message,
            size_t length) override {
    const absl::MutexLock lock(&mu_);
    if (absl::StrContains(absl::string_view(message, length),
                          "to write a checkpoint: ")) {
      ++count_;
    }
  }

  bool Await(int count) const {
    const auto are_there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return count_ >= count;
    };
    const absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&are_there), absl::Minutes(1));
  }

 private:
  mutable absl::Mutex mu_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

// In the place of a checkpoint, while it lives, so that it cannot be written:
// for root, too.
class InTheWay {
 public:
  InTheWay(const TempFolder& temp, int epochs)
      : path_(temp / CheckpointName(epochs)) {
    EXPECT_TRUE(fs::create_directories(path_ + "/thing"));
  }
  ~InTheWay() { Remove(); }
  void Remove() { fs::remove_all(path_); }

 private:
  const std::string path_;
};

constexpr absl::Duration kShort = absl::Milliseconds(1);
constexpr absl::Duration kForever = absl::Hours(24);

TEST(CheckpointStoreTest, WhatFailsIsTriedAgainInTheBackground) {
  TempFolder temp;
  FailedTries failed;
  CheckpointStore store(temp.path(), {}, kShort);
  InTheWay thing(temp, 2);
  store.Write(After(2));
  ASSERT_TRUE(failed.Await(3));
  EXPECT_FALSE(store.Poll().has_value());
  EXPECT_TRUE(store.writing());
  thing.Remove();
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  std::optional<CheckpointStore::Outcome> outcome;
  while (!(outcome = store.Poll()).has_value() && absl::Now() < deadline) {
    absl::SleepFor(kShort);
  }
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(outcome->written, IsOk());
  EXPECT_EQ(Told(store).checkpoint, temp / "checkpoint_000002");
  EXPECT_THAT(ReadCheckpoint(Told(store).checkpoint), IsOk());
}

TEST(CheckpointStoreTest, AFolderThatIsAwayIsTriedAgain) {
  TempFolder temp;
  FailedTries failed;
  CheckpointStore store(temp / "run", {}, kShort);
  // No folder: nothing can be made in it.
  std::ofstream(temp / "run") << "none";
  store.Write(After(1));
  ASSERT_TRUE(failed.Await(2));
  fs::remove(temp / "run");
  const auto outcome = store.Wait();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(outcome->written, IsOk());
  EXPECT_THAT(ReadCheckpoint(temp / "run/checkpoint_000001"), IsOk());
}

TEST(CheckpointStoreTest, OneThatCannotBeWrittenMakesWayForANewerOne) {
  TempFolder temp;
  FailedTries failed;
  CheckpointStore store(temp.path(), {}, kForever);
  const InTheWay thing(temp, 1);
  store.Write(After(1));
  ASSERT_TRUE(failed.Await(1));
  const auto outcome = store.MakeWay();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(
      outcome->written.status().message(),
      AllOf(HasSubstr("checkpoint_000001"),
            HasSubstr("it is given up for a newer one, tried 1 time in ")));
  EXPECT_FALSE(store.MakeWay().has_value());
  ASSERT_THAT(Write(store, After(2)), IsOk());
  EXPECT_EQ(Told(store).checkpoint, temp / "checkpoint_000002");
  // One that is written already makes no way.
  store.Write(After(3));
  EXPECT_TRUE(store.AwaitTry());
  const auto third = store.MakeWay();
  ASSERT_TRUE(third.has_value());
  EXPECT_THAT(third->written, IsOk());
}

TEST(CheckpointStoreTest, AWaitEndsThePauseAndHasAnEndItself) {
  TempFolder temp;
  for (const bool passes : {true, false}) {
    FailedTries failed;
    CheckpointStore store(temp.path(), {}, kForever);
    InTheWay thing(temp, 1);
    store.Write(After(1));
    ASSERT_TRUE(failed.Await(1));
    if (passes) thing.Remove();
    const auto outcome = store.Wait();
    ASSERT_TRUE(outcome.has_value());
    if (passes) {
      EXPECT_THAT(outcome->written, IsOk());
    } else {
      EXPECT_THAT(outcome->written.status().message(),
                  HasSubstr("it is given up, tried 5 times in "));
    }
  }
}

TEST(CheckpointStoreTest, AWaitTriesMoreThanOnce) {
  TempFolder temp;
  FailedTries failed;
  CheckpointStore store(temp.path(), {}, kForever);
  InTheWay thing(temp, 1);
  store.Write(After(1));
  std::thread remover([&] {
    EXPECT_TRUE(failed.Await(2));  // The second is of Wait.
    thing.Remove();
  });
  const auto outcome = store.Wait();
  remover.join();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(outcome->written, IsOk());
}

TEST(CheckpointStoreTest, ATryCanBeWaitedForAlone) {
  TempFolder temp;
  CheckpointStore store(temp.path(), {}, kForever);
  EXPECT_TRUE(store.AwaitTry());
  const InTheWay thing(temp, 1);
  store.Write(After(1));
  EXPECT_FALSE(store.AwaitTry());
  EXPECT_FALSE(store.Poll().has_value());
  EXPECT_FALSE(store.MakeWay()->written.ok());
  store.Write(After(2));
  EXPECT_TRUE(store.AwaitTry());
  const auto outcome = store.Poll();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(outcome->written, IsOk());
}

TEST(CheckpointStoreTest, AStoreEndsWhateverItWaitsFor) {
  TempFolder temp;
  FailedTries failed;
  const InTheWay thing(temp, 1);
  {
    CheckpointStore store(temp.path(), {}, kForever);
    store.Write(After(1));
    ASSERT_TRUE(failed.Await(1));
  }
  EXPECT_THAT(temp.List(), ElementsAre("checkpoint_000001"));
}

}  // namespace
}  // namespace miniray::train
