// TorchTrainer where ranks fail, with real signals: what the error says, and
// that training comes to what it would have come to.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/driver_process.h"
#include "tests/train/file_at_log_line.h"
#include "tests/train/functions/walk.h"
#include "train/collective/collective_error.h"
#include "train/functions/torch_trainer.h"
#include "train/functions/worker.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::json;

// With this in its environment, "ADDRESS FOLDER EPOCHS SECONDS", the test's
// executable is a driver that trains there.
constexpr char kDriverVariable[] = "FUNCTIONS_TEST_DRIVER";

constexpr int kEpochs = 6;

// Rank 1 fails once the trainer has heard that rank 0 has, as a collective
// fails whose peer is gone.
void FailAsPeer(Context& ctx) {
  ctx.Report({});
  if (ctx.rank() == 0 && ctx.config<std::string>("how") == "kill") {
    throw PeerFailure("connection closed by peer");
  }
  if (ctx.rank() == 0) {
    throw CollectiveError(absl::UnavailableError("connection closed by peer"));
  }
  if (!AwaitFile(ctx.config<std::string>("heard"))) {
    throw std::runtime_error("nobody looks for a cause");
  }
  if (ctx.config<std::string>("how") == "kill") kill(getpid(), SIGKILL);
  throw std::runtime_error("loss went up");
}
MINIRAY_TRAIN_FUNC(FailAsPeer);

TorchTrainerOptions OptionsFor(const Cluster& cluster,
                               const std::string& storage) {
  TorchTrainerOptions options;
  options.config = {{"epochs", kEpochs}};
  options.scaling.num_workers = 2;
  options.run.name = "run";
  options.run.storage_path = storage;
  options.cluster = cluster;
  return options;
}

// Each report once, with what it is without any failure; in the result and on
// the disk.
void ExpectWhole(const Result& result, int num_ranks = 2,
                 int epochs = kEpochs) {
  ASSERT_THAT(result.history, SizeIs(epochs));
  for (int i = 0; i < epochs; ++i) {
    const EpochResult& epoch = result.history[i];
    EXPECT_EQ(epoch.epoch, i);
    ASSERT_THAT(epoch.per_worker, SizeIs(num_ranks));
    for (int rank = 0; rank < num_ranks; ++rank) {
      EXPECT_EQ(epoch.per_worker[rank].at("epoch"), i);
      EXPECT_EQ(epoch.per_worker[rank].at("rank"), rank);
      EXPECT_EQ(epoch.per_worker[rank].at("x"), WalkedTo(rank, i + 1));
    }
  }
  if (result.path.empty()) return;
  const std::string text = *ReadFile(result.path + "/history.jsonl");
  const std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(epochs));
  for (int i = 0; i < epochs; ++i) {
    EXPECT_EQ(Json::parse(lines[i])["epoch"], i);
    EXPECT_EQ(Json::parse(lines[i])["metrics"]["x"], WalkedTo(0, i + 1));
  }
}

class TorchTrainerFailureTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {4}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  // A run whose rank fails as `fault` says; see Walk.
  TorchTrainerOptions Options(const std::string& fault) {
    TorchTrainerOptions options = OptionsFor(*cluster_, temp_.path());
    if (!fault.empty()) {
      EXPECT_THAT(WriteFileAtomically(temp_ / "fault", fault), IsOk());
      options.config.Set("fault_file", temp_ / "fault");
    }
    return options;
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};

TestCluster* TorchTrainerFailureTest::nodes_ = nullptr;
Cluster* TorchTrainerFailureTest::cluster_ = nullptr;

// --- Without failures that are borne.

TEST_F(TorchTrainerFailureTest, TheErrorSaysWhatTheFunctionThrewAndWhere) {
  TorchTrainer trainer(Walk, Options("1 2 step throw"));
  const absl::Status status = trainer.Fit().status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("rank 1 (process "), HasSubstr("on node-"),
                    HasSubstr("threw std::runtime_error: loss went up"),
                    Not(HasSubstr("also"))));
  const Result& result = trainer.last_result();
  EXPECT_EQ(result.error, status);
  EXPECT_THAT(result.history, SizeIs(2));
  ASSERT_THAT(result.failures, SizeIs(1));
  EXPECT_EQ(result.failures[0].worker_id, 1);
  EXPECT_EQ(result.failures[0].epoch, 2);
  EXPECT_TRUE(result.failures[0].fatal);
  const Json json = Json::parse(*ReadFile(temp_ / "run/result.json"));
  EXPECT_EQ(json["error"]["message"], std::string(status.message()));
}

TEST_F(TorchTrainerFailureTest, TheErrorSaysHowAProcessDied) {
  for (const std::string where : {"step", "save", "barrier"}) {
    SCOPED_TRACE(where);
    TorchTrainerOptions options = Options(absl::StrCat("1 2 ", where, " kill"));
    options.run.name = where;
    TorchTrainer trainer(Walk, options);
    EXPECT_THAT(trainer.Fit(),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(StartsWith("rank 1 "), HasSubstr("signal 9"))));
    // Who dies in the barrier has reported: it may be complete before the
    // driver hears of it.
    EXPECT_THAT(trainer.last_result().history,
                SizeIs(AnyOf(2, where == "barrier" ? 3 : 2)));
  }
}

TEST_F(TorchTrainerFailureTest, LocalModeHasTheSameErrors) {
  TorchTrainerOptions options = Options("0 2 step throw");
  options.scaling.num_workers = 0;
  TorchTrainer trainer(Walk, options);
  EXPECT_THAT(trainer.Fit(),
              StatusIs(absl::StatusCode::kUnknown,
                       AllOf(HasSubstr("rank 0 (in this process)"),
                             HasSubstr("loss went up"))));
  EXPECT_THAT(trainer.last_result().history, SizeIs(2));
}

TEST_F(TorchTrainerFailureTest, TheBarrierNamesTheMissingRank) {
  for (const std::string how : {"spin", "stop"}) {
    SCOPED_TRACE(how);
    TorchTrainerOptions options = Options(absl::StrCat("1 2 step ", how));
    options.run.name = how;
    options.run.report_timeout = absl::Seconds(4);
    options.run.abort_timeout = absl::Milliseconds(300);
    TorchTrainer trainer(Walk, options);
    EXPECT_THAT(trainer.Fit(),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("report 2: 1 of 2 ranks"),
                               HasSubstr("report_timeout"),
                               HasSubstr("missing: rank 1 (process "),
                               HasSubstr(how == "spin" ? "which fails"
                                                       : "does not answer"),
                               Not(HasSubstr("rank 0 (")))));
    ASSERT_THAT(trainer.last_result().failures, SizeIs(1));
    EXPECT_EQ(trainer.last_result().failures[0].worker_id, 1);
  }
}

TEST_F(TorchTrainerFailureTest, AHangOfAllRanksIsNoticed) {
  TorchTrainerOptions options = Options("0 2 step spin");
  options.scaling.num_workers = 1;
  options.run.failure.hang_timeout = absl::Seconds(4);
  options.run.abort_timeout = absl::Milliseconds(300);
  TorchTrainer trainer(Walk, options);
  EXPECT_THAT(trainer.Fit(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("report 2: 0 of 1"),
                             HasSubstr("hang_timeout"), HasSubstr("rank 0"))));
}

TEST_F(TorchTrainerFailureTest, ARankThatLeavesEarlyIsAnErrorAtOnce) {
  TorchTrainer trainer(Walk, Options("1 2 step leave"));
  EXPECT_THAT(trainer.Fit(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(StartsWith("rank 1 "), HasSubstr("2 reports"),
                             HasSubstr("equally often"))));
}

TEST_F(TorchTrainerFailureTest, TheCauseIsToldAndNotWhatCameOfIt) {
  for (const std::string how : {"throw", "kill"}) {
    TorchTrainerOptions options = Options("");
    options.run.name = how;
    options.config.Set("how", how);
    options.config.Set("heard", temp_ / (how + ".heard"));
    const FileAtLogLine heard("the cause is looked for",
                              temp_ / (how + ".heard"));
    TorchTrainer trainer(FailAsPeer, options);
    const absl::Status status = trainer.Fit().status();
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("rank 1 "),
                      HasSubstr(how == "kill" ? "signal 9" : "loss went up"),
                      Not(HasSubstr("closed by peer"))));
  }
}

// --- With failures that are borne.

TEST_F(TorchTrainerFailureTest, AllRanksGoOnFromTheLastCheckpoint) {
  for (const std::string fault :
       {"1 3 step throw", "1 3 step kill", "0 3 step kill", "1 3 save kill",
        "1 3 barrier kill", "1 3 step stop", "0 3 save spin", "1 3 step wait",
        "1 3 step leave"}) {
    for (const int save_every : {1, 2, 100}) {
      SCOPED_TRACE(absl::StrCat(fault, ", save every ", save_every));
      TorchTrainerOptions options = Options(fault);
      options.run.name = absl::StrCat(absl::StrReplaceAll(fault, {{" ", "-"}}),
                                      "-", save_every);
      options.run.failure.max_failures = 1;
      // The others fail by themselves.
      if (absl::StrContains(fault, "stop") ||
          absl::StrContains(fault, "spin") ||
          absl::StrContains(fault, "wait")) {
        options.run.report_timeout = absl::Seconds(3);
      }
      options.run.abort_timeout = absl::Milliseconds(500);
      options.config.Set("save_every", save_every);
      TorchTrainer trainer(Walk, options);
      const auto result = trainer.Fit();
      ASSERT_THAT(result, IsOk());
      ExpectWhole(*result);
      EXPECT_THAT(result->failures, SizeIs(1));
      EXPECT_FALSE(result->failures[0].fatal);
      const int failed_at = result->failures[0].epoch;
      // Who dies in the barrier has reported: it may be complete before the
      // driver hears of it.
      const bool in_barrier = absl::StrContains(fault, "barrier");
      EXPECT_THAT(failed_at, AnyOf(3, in_barrier ? 4 : 3));
      const int first_anew = failed_at - failed_at % save_every;
      for (int i = 0; i < kEpochs; ++i) {
        EXPECT_EQ(result->history[i].metrics.at("generation"), i >= first_anew);
      }
    }
  }
}

TEST_F(TorchTrainerFailureTest, ProcessesThatLiveAreUsedAgain) {
  TorchTrainerOptions options = Options("1 3 step kill");
  options.run.failure.max_failures = 1;
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  const auto pid = [&](int epoch, int rank) {
    return result->history.at(epoch).per_worker.at(rank).at("pid");
  };
  EXPECT_EQ(pid(2, 0), pid(3, 0));
  EXPECT_NE(pid(2, 1), pid(3, 1));
}

TEST_F(TorchTrainerFailureTest, LocalModeGoesOnToo) {
  TorchTrainerOptions options = Options("0 3 step throw");
  options.scaling.num_workers = 0;
  options.run.failure.max_failures = 1;
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  ExpectWhole(*result, /*num_ranks=*/1);
}

TEST_F(TorchTrainerFailureTest, WithoutAFolderTheLastCheckpointIsInMemory) {
  TorchTrainerOptions options = Options("1 3 step kill");
  options.run.storage_path = "";
  options.run.failure.max_failures = 1;
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  ExpectWhole(*result);
  EXPECT_EQ(result->history[2].metrics.at("generation"), 0);
  EXPECT_EQ(result->history[3].metrics.at("generation"), 1);
}

TEST_F(TorchTrainerFailureTest, TheFirstOfTooManyFailuresIsTheError) {
  TorchTrainerOptions options = Options("1 3 step throw always");
  options.run.failure.max_failures = 2;
  TorchTrainer trainer(Walk, options);
  const absl::Status status = trainer.Fit().status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("loss went up"), HasSubstr("; then: rank 1")));
  EXPECT_THAT(trainer.last_result().failures, SizeIs(3));
  EXPECT_TRUE(trainer.last_result().failures[2].fatal);
  EXPECT_THAT(trainer.last_result().history, SizeIs(3));

  // And it can be gone on with.
  std::filesystem::remove(temp_ / "fault");
  options.config.Set("fault_file", "");
  TorchTrainer next(Walk, options);
  const auto result = next.Fit();
  ASSERT_THAT(result, IsOk());
  ExpectWhole(*result);
}

// --- Between a least and a most number of ranks.

// Does something at a report or a failure.
class AtEvent : public Callback {
 public:
  std::function<void(int epoch)> at_report;  // May be empty, both.
  std::function<void()> at_failure;

  void OnEpochEnd(TrainContext& context, const EpochResult& result) override {
    if (at_report) at_report(result.epoch);
  }
  void OnWorkerFailure(TrainContext& context,
                       const WorkerFailure& failure) override {
    num_workers.push_back(context.num_workers());
    if (at_failure) at_failure();
  }
  std::vector<int> num_workers;  // At each failure.
};

std::vector<size_t> WorldSizes(const Result& result) {
  std::vector<size_t> sizes;
  for (const EpochResult& epoch : result.history) {
    sizes.push_back(epoch.per_worker.size());
  }
  return sizes;
}

TEST_F(TorchTrainerFailureTest, AGroupThatBeginsAgainGrowsWhereThereIsRoom) {
  TestCluster nodes({.node_cpus = {4}});
  const Cluster cluster = nodes.Connect();
  const auto occupant = cluster.CreateActor<TrainFunctionWorker>({});
  ASSERT_THAT(occupant, IsOk());
  ASSERT_THAT(occupant->WaitReady(), IsOk());
  TorchTrainerOptions options = Options("1 3 step throw");
  options.cluster = cluster;
  options.scaling.num_workers = {2, 4};
  options.run.failure.max_failures = 1;
  auto events = std::make_shared<AtEvent>();
  events->at_failure = [&] {
    EXPECT_THAT(occupant->Kill(), IsOk());
    // Who begins again does not wait long for room, unless it has it: a worker
    // waits for some from the first checkpoint on.
    EXPECT_TRUE(Eventually([&] {
      const v1::GetClusterStateResponse state = nodes.head().GetState();
      return std::count_if(state.actors().begin(), state.actors().end(),
                           [&](const v1::ActorInfo& actor) {
                             return actor.actor_id() != occupant->actor_id() &&
                                    !actor.node_id().empty();
                           }) == 4;
    }));
  };
  options.run.callbacks = {events};
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(WorldSizes(*result), ElementsAre(3, 3, 3, 4, 4, 4));
  EXPECT_THAT(events->num_workers, ElementsAre(3));
  // The new rank goes on from what rank 0 had.
  EXPECT_EQ(result->history[2].per_worker[2].at("x"), WalkedTo(2, 3));
  EXPECT_EQ(result->history[5].per_worker[2].at("x"), WalkedTo(2, 6));
  EXPECT_EQ(result->history[3].per_worker[3].at("x"),
            WalkedTo(0, 3) + (16 - WalkedTo(0, 3)) / 2);
}

TEST_F(TorchTrainerFailureTest, AGroupThatLosesANodeGoesOnWithFewerRanks) {
  for (const size_t lost : {0, 1}) {
    TestCluster nodes({.node_cpus = {2, 2}});
    TorchTrainerOptions options = Options("");
    options.run.name = absl::StrCat("run", lost);
    options.cluster = nodes.Connect();
    options.scaling.num_workers = {2, 4};
    options.run.failure.max_failures = 1;
    auto events = std::make_shared<AtEvent>();
    events->at_report = [&](int epoch) {
      if (epoch == 2) nodes.StopDaemon(lost);
    };
    options.run.callbacks = {events};
    TorchTrainer trainer(Walk, options);
    const auto result = trainer.Fit();
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(WorldSizes(*result), ElementsAre(4, 4, 4, 2, 2, 2));
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(result->history[5].per_worker[rank].at("x"), WalkedTo(rank, 6));
    }
  }
}

// --- The driver.

int Drive(const std::string& what) {
  const std::vector<std::string> words = absl::StrSplit(what, ' ');
  absl::StatusOr<Cluster> cluster = Cluster::Connect({.address = words[0]});
  if (!cluster.ok()) return 2;
  TorchTrainerOptions options = OptionsFor(*cluster, words[1]);
  int epochs = 0;
  double seconds = 0;
  if (!absl::SimpleAtoi(words[2], &epochs) ||
      !absl::SimpleAtod(words[3], &seconds)) {
    return 2;
  }
  options.config = {{"epochs", epochs},
                    {"epoch_seconds", seconds},
                    {"folder", words[1]},
                    {"padding", 1 << 20}};
  TorchTrainer trainer(Walk, options);
  const absl::Status status = trainer.Fit().status();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

TEST_F(TorchTrainerFailureTest, ADriverThatIsKilledGoesOnByTheSameName) {
  const std::string folder = temp_ / "run";
  int at_least = 0;
  for (int i = 0; i < 4; ++i) {
    DriverProcess driver(
        kDriverVariable,
        absl::StrCat(nodes_->address(), " ", temp_.path(), " 1000000 0"));
    at_least += 3;
    const std::string next = folder + "/" + CheckpointName(at_least);
    const std::string part = next + ".part";
    // As it is being written, if that can be had.
    ASSERT_TRUE(Eventually(
        [&] {
          return std::filesystem::exists(i % 2 == 0 ? next : part) ||
                 std::filesystem::exists(next);
        },
        absl::Seconds(60)));
    driver.Signal(SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(driver.Wait())) << "it ended by itself";
    int last = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (const auto epochs = EpochsOfCheckpointName(name)) {
        EXPECT_THAT(ReadCheckpoint(entry.path().string()), IsOk());
        last = std::max(last, *epochs);
      }
    }
    EXPECT_GE(last, at_least - 1);
    at_least = last;
  }
  TorchTrainerOptions options = OptionsFor(*cluster_, temp_.path());
  options.config = {{"epochs", at_least + 2}};
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  ExpectWhole(*result, 2, at_least + 2);
}

TEST_F(TorchTrainerFailureTest, ASignalEndsTrainingWithACheckpoint) {
  const std::string folder = temp_ / "run";
  DriverProcess driver(
      kDriverVariable,
      absl::StrCat(nodes_->address(), " ", temp_.path(), " 1000000 0.02"));
  ASSERT_TRUE(Eventually(
      [&] { return std::filesystem::exists(folder + "/checkpoint_000002"); },
      absl::Seconds(60)));
  driver.Signal(SIGTERM);
  const int status = driver.Wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const Json json = Json::parse(*ReadFile(folder + "/result.json"));
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(json["stopped_by"], "SIGTERM");
  const int epochs = json["epochs"];
  EXPECT_GE(epochs, 2);
  EXPECT_EQ(json["checkpoint"], folder + "/" + CheckpointName(epochs));
}

}  // namespace
}  // namespace miniray::train

SPAWNED_PROCESS_TEST_MAIN(miniray::train::kDriverVariable,
                          miniray::train::Drive)
