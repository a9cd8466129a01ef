// FailurePolicy::kHeal, what is taken for a failure, and what is told of it.

#include <signal.h>

#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/file_at_log_line.h"
#include "tests/train/recovery_worker.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// x after epochs 0 to 3: the workers go half of the way to 4 and 8, and their
// mean half of the way to 6.
const std::vector<double> kUndisturbed = {3, 4.5, 5.25, 5.625};

// None where nobody hangs: the machine may be slow.
absl::Duration HangTimeout(const std::string& fault) {
  return fault == "hang" || fault == "stop" ? absl::Seconds(5)
                                            : absl::InfiniteDuration();
}

// Kills a process once the log has a line with this text, and keeps the line.
class KillAtLine : public google::LogSink {
 public:
  explicit KillAtLine(std::string text) : text_(std::move(text)) {
    google::AddLogSink(this);
  }
  ~KillAtLine() override { google::RemoveLogSink(this); }

  void Watch(int64_t pid) {
    const absl::MutexLock lock(&mu_);
    pid_ = pid;
  }
  std::string line() {
    const absl::MutexLock lock(&mu_);
    return line_;
  }

  using google::LogSink::send;
  void send(google::LogSeverity severity, const char* full_filename,
            const char* base_filename, int line,
            const google::LogMessageTime& time, const char* message,
            size_t length) override {
    const absl::string_view text(message, length);
    const absl::MutexLock lock(&mu_);
    if (severity < google::GLOG_WARNING || !line_.empty() ||
        !absl::StrContains(text, text_)) {
      return;
    }
    line_ = std::string(text);
    if (pid_ > 0) kill(static_cast<pid_t>(pid_), SIGKILL);
  }

 private:
  const std::string text_;
  absl::Mutex mu_;
  int64_t pid_ ABSL_GUARDED_BY(mu_) = 0;
  std::string line_ ABSL_GUARDED_BY(mu_);
};

class TrainerHealTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {4}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  TrainerOptions Options(FailureConfig failure) {
    return {.num_workers = 2, .cluster = *cluster_, .failure = failure};
  }

  // Trains 4 epochs with this fault in `epoch`.
  absl::StatusOr<Result> Train(RecoveryTrainer* trainer,
                               const std::string& fault, int epoch = 1,
                               double epoch_seconds = 0) {
    const std::string file = temp_.path() + "/fault";
    trainer->at_epoch_start = [=, first = true](int now) mutable {
      if (now != epoch || !std::exchange(first, false)) return;
      EXPECT_THAT(WriteFileAtomically(file, fault), IsOk());
    };
    return trainer->Train(
        {.epochs = 4,
         .config = {{"fault_file", file}, {"epoch_seconds", epoch_seconds}}});
  }

  // x as synchronised, after each epoch: what the workers had before it is in
  // what they report after the next.
  static double Final(const RecoveryTrainer& trainer) {
    return trainer.PullWeights()->at(0).second.item<float>();
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};

TestCluster* TrainerHealTest::nodes_ = nullptr;
Cluster* TrainerHealTest::cluster_ = nullptr;

// Only the lost one is made anew, with the weights of the last synchronisation:
// the numbers are those of an undisturbed training, for the workers remember
// nothing else.
TEST_F(TrainerHealTest, AWorkerLostInAnEpochIsReplacedAndCalledAgain) {
  for (const std::string how : {"throw", "kill", "hang", "stop"}) {
    for (const int epoch : {0, 2}) {  // Before the first synchronisation, too.
      SCOPED_TRACE(absl::StrCat(how, " in epoch ", epoch));
      auto observer = std::make_shared<FailureObserver>();
      TrainerOptions options = Options({.max_failures = 1,
                                        .policy = FailurePolicy::kHeal,
                                        .hang_timeout = HangTimeout(how)});
      options.callbacks = {observer};
      RecoveryTrainer trainer(options);
      const auto result = Train(&trainer, "1 TrainEpoch " + how, epoch);
      ASSERT_THAT(result, IsOk());
      ASSERT_THAT(result->history, SizeIs(4));
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(result->history[i].epoch, i);
        EXPECT_EQ(result->history[i].metrics.at("x"), kUndisturbed[i]);
        EXPECT_EQ(result->history[i].metrics.at("epoch"), i);
      }
      EXPECT_EQ(Final(trainer), kUndisturbed[3]);
      EXPECT_THAT(trainer.created, ElementsAre(0, 1, 1));
      EXPECT_EQ(trainer.num_train_starts, 1);
      ASSERT_THAT(result->failures, SizeIs(1));
      const WorkerFailure& failure = result->failures[0];
      EXPECT_EQ(failure.epoch, epoch);
      EXPECT_EQ(failure.worker_id, 1);
      EXPECT_FALSE(failure.fatal);
      const std::map<std::string, std::string> texts = {
          {"throw", "loss went up"},
          {"kill", "signal 9"},
          {"hang", "no progress for 5s"},
          {"stop", "no progress for 5s"}};
      EXPECT_THAT(
          std::string(failure.error.message()),
          AllOf(StartsWith(absl::StrCat("epoch ", epoch + 1, "/4: worker 1")),
                HasSubstr(texts.at(how))));
      EXPECT_THAT(trainer.failures, SizeIs(1));
      EXPECT_THAT(observer->failures, SizeIs(1));
    }
  }
}

// What the lost one has trained since the last synchronisation is lost: in
// epoch 1 it contributes 3 again, and worker 0 3.5.
TEST_F(TrainerHealTest, AWorkerLostInASynchronisationIsReplacedBeforeTheNext) {
  for (const std::string how : {"kill", "stop"}) {
    SCOPED_TRACE(how);
    RecoveryTrainer trainer(Options({.max_failures = 1,
                                     .policy = FailurePolicy::kHeal,
                                     .hang_timeout = HangTimeout(how)}));
    const auto result = Train(&trainer, "1 GetWeights " + how);
    ASSERT_THAT(result, IsOk());
    ASSERT_THAT(result->history, SizeIs(4));
    EXPECT_EQ(Final(trainer), 5.3125);
    EXPECT_THAT(trainer.created, ElementsAre(0, 1, 1));
    ASSERT_THAT(result->failures, SizeIs(1));
    EXPECT_EQ(result->failures[0].worker_id, 1);
    EXPECT_THAT(std::string(result->failures[0].error.message()),
                AllOf(StartsWith("epoch 2/4: synchronisation: worker 1"),
                      HasSubstr(how == "kill" ? "signal 9" : "not answer")));
  }
}

// Two steps an epoch, each synchronised: after k of them x is 6 (1 - 2^-k).
TEST_F(TrainerHealTest, AWorkerLostInAPieceOrAnEvaluationIsReplaced) {
  const auto x_after = [](int steps) { return 6 - 6 * std::ldexp(1, -steps); };
  for (const std::string method :
       {"TrainSteps0", "TrainSteps1", "EvaluateShard"}) {
    for (const int64_t num_shards : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(method, ", ", num_shards, " shards"));
      TrainerOptions options =
          Options({.max_failures = 1, .policy = FailurePolicy::kHeal});
      options.sync_every = 1;
      options.evaluate_every = 1;
      options.server_options.num_shards = num_shards;
      RecoveryTrainer trainer(options);
      const auto result = Train(&trainer, "1 " + method + " kill", 2);
      ASSERT_THAT(result, IsOk());
      ASSERT_THAT(result->history, SizeIs(4));
      for (int i = 0; i < 4; ++i) {
        const Metrics& metrics = result->history[i].metrics;
        EXPECT_EQ(metrics.at("x"),
                  (x_after(2 * i + 1) + x_after(2 * i + 2)) / 2);
        EXPECT_EQ(metrics.at("eval/x"), x_after(2 * i + 2));
        EXPECT_EQ(metrics.at("eval/samples"), 2);
        EXPECT_EQ(metrics.at("steps"), 2);
      }
      EXPECT_EQ(Final(trainer), x_after(8));
      EXPECT_EQ(trainer.GetSyncStats()->version, 8);
      EXPECT_THAT(trainer.created, ElementsAre(0, 1, 1));
      ASSERT_THAT(result->failures, SizeIs(1));
      EXPECT_EQ(result->failures[0].worker_id, 1);
      EXPECT_EQ(result->failures[0].epoch, 2);
    }
  }
}

// As with one server: what the lost one has trained is lost where it had not
// been aggregated yet, and a result that has been is only pushed again.
TEST_F(TrainerHealTest, AWorkerLostInASynchronisationOfShardsIsReplaced) {
  const std::map<std::string, double> ends = {
      {"SendWeights", 5.3125}, {"ReceiveWeights", kUndisturbed[3]}};
  for (const auto& [method, end] : ends) {
    SCOPED_TRACE(method);
    TrainerOptions options =
        Options({.max_failures = 1, .policy = FailurePolicy::kHeal});
    options.server_options.num_shards = 2;
    RecoveryTrainer trainer(options);
    const auto result = Train(&trainer, "1 " + method + " kill");
    ASSERT_THAT(result, IsOk());
    ASSERT_THAT(result->history, SizeIs(4));
    EXPECT_EQ(Final(trainer), end);
    EXPECT_EQ(trainer.GetSyncStats()->version, 4);
    EXPECT_THAT(trainer.created, ElementsAre(0, 1, 1));
    ASSERT_THAT(result->failures, SizeIs(1));
    EXPECT_EQ(result->failures[0].worker_id, 1);
  }
}

// To the parameter server it is the first of one.
TEST_F(TrainerHealTest, AReplacementThatCannotTakeTheWeightsIsNamed) {
  RecoveryTrainer trainer(
      Options({.max_failures = 1, .policy = FailurePolicy::kHeal}));
  trainer.at_epoch_start = [&](int epoch) {
    if (epoch != 1) return;
    EXPECT_THAT(
        WriteFileAtomically(temp_.path() + "/fault", "1 TrainEpoch throw"),
        IsOk());
    EXPECT_THAT(
        WriteFileAtomically(temp_.path() + "/fault1", "1 SetWeights throw"),
        IsOk());
  };
  const auto result = trainer.Train(
      {.epochs = 4, .config = {{"fault_file", temp_.path() + "/fault"}}});
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("then: epoch 2/4: worker 1 in the place of a "
                              "lost one: the weights of the last "
                              "synchronisation"),
                    HasSubstr("worker 1 (RecoveryWorker 'worker-1')"),
                    Not(HasSubstr("worker 0"))));
}

// Epochs 0 and 1 go well each time, and are trained again: that is no progress.
// The pauses are none, 0.5 s, 1 s, and 2 s, and a quarter less at most.
TEST_F(TrainerHealTest, AFailureThatComesAgainIsWaitedForLongerAndLonger) {
  auto observer = std::make_shared<FailureObserver>();
  std::vector<absl::Time> times;
  observer->at_failure = [&](const WorkerFailure&) {
    times.push_back(absl::Now());
  };
  TrainerOptions options = Options({.max_failures = 4});
  options.callbacks = {observer};
  RecoveryTrainer trainer(options);
  std::vector<int> epochs;
  const std::string file = temp_.path() + "/fault";
  trainer.at_epoch_start = [&](int epoch) {
    epochs.push_back(epoch);
    if (epoch != 2) return;
    EXPECT_THAT(WriteFileAtomically(file, "1 TrainEpoch throw"), IsOk());
  };
  const auto result =
      trainer.Train({.epochs = 4, .config = {{"fault_file", file}}});
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("loss went up"));
  EXPECT_THAT(epochs, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2));
  ASSERT_THAT(times, SizeIs(5));
  EXPECT_GE(times[4] - times[3], absl::Seconds(1.5));
}

// The synchronisation goes on without the lost one, if it has the other, and
// the lost one is made anew when it is called next. Where it had not given its
// weights, its epoch is lost: 4.5 becomes 3.5, which worker 0 has.
TEST_F(TrainerHealTest, AQuorumGoesOnWithoutALostWorkerWhoIsReplacedLater) {
  struct Case {
    std::string method, how;
    std::vector<double> x;  // After each epoch.
    double end;
  };
  const std::vector<double> without = {3, 4.5, 4.75, 5.375};
  const Case cases[] = {{"GetWeights", "kill", without, 5.375},
                        {"GetWeights", "stop", without, 5.375},
                        {"SetWeights", "kill", kUndisturbed, kUndisturbed[3]}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.method + " " + c.how);
    TrainerOptions options = Options({.max_failures = 1,
                                      .policy = FailurePolicy::kHeal,
                                      .hang_timeout = HangTimeout(c.how)});
    options.server_options.min_workers = 1;
    // Only who is stopped is late.
    options.server_options.sync_timeout_seconds = c.how == "stop" ? 5 : 60;
    RecoveryTrainer trainer(options);
    const auto result = Train(&trainer, "1 " + c.method + " " + c.how);
    ASSERT_THAT(result, IsOk());
    ASSERT_THAT(result->history, SizeIs(4));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(result->history[i].epoch, i);
      EXPECT_EQ(result->history[i].metrics.at("x"), c.x[i]) << i;
      EXPECT_TRUE(result->history[i].synced) << i;
    }
    EXPECT_EQ(result->history[1].sync.num_lost, c.method == "GetWeights");
    EXPECT_EQ(Final(trainer), c.end);
    EXPECT_EQ(trainer.GetSyncStats()->version, 4);
    EXPECT_THAT(trainer.created, ElementsAre(0, 1, 1));
    ASSERT_THAT(result->failures, SizeIs(1));
    EXPECT_EQ(result->failures[0].worker_id, 1);
    EXPECT_THAT(std::string(result->failures[0].error.message()),
                AllOf(StartsWith("epoch 3/4: worker 1"),
                      HasSubstr(c.how == "kill" ? "signal 9" : "no progress")));
  }
}

// Both are killed before one is made anew: the server waits for both.
TEST_F(TrainerHealTest, TwoWorkersThatHangInASynchronisationAreBothReplaced) {
  RecoveryTrainer trainer(Options({.max_failures = 2,
                                   .policy = FailurePolicy::kHeal,
                                   .hang_timeout = absl::Seconds(5)}));
  const std::string file = temp_.path() + "/fault";
  trainer.at_epoch_start = [&, first = true](int epoch) mutable {
    if (epoch != 2 || !std::exchange(first, false)) return;
    EXPECT_THAT(WriteFileAtomically(file + "0", "0 GetWeights stop"), IsOk());
    EXPECT_THAT(WriteFileAtomically(file + "1", "1 GetWeights hang"), IsOk());
  };
  const auto result =
      trainer.Train({.epochs = 4, .config = {{"fault_file", file}}});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(4));
  EXPECT_THAT(trainer.created, ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(trainer.num_train_starts, 1);
  EXPECT_THAT(result->failures, SizeIs(2));
  // Epoch 2 is lost, in which both would have come to 5.25.
  EXPECT_EQ(Final(trainer), kUndisturbed[2]);
}

// The server has aggregated before the worker is lost: it does not do so again.
TEST_F(TrainerHealTest, ASynchronisationThatIsRepeatedCountsOnce) {
  RecoveryTrainer trainer(
      Options({.max_failures = 1, .policy = FailurePolicy::kHeal}));
  const auto result = Train(&trainer, "1 SetWeights kill");
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->failures, SizeIs(1));
  EXPECT_EQ(trainer.GetSyncStats()->version, 4);
  EXPECT_EQ(Final(trainer), kUndisturbed[3]);
}

// Worker 0 fails first, because it loses its connection to worker 1; it is no
// failure of its own.
TEST_F(TrainerHealTest, WhoFailedBecauseOfTheLostOneIsCalledAgain) {
  RecoveryTrainer trainer(
      Options({.max_failures = 1, .policy = FailurePolicy::kHeal}));
  const FileAtLogLine heard("the cause is looked for", temp_ / "fault.heard");
  const auto result = Train(&trainer, "1 TrainEpoch follow");
  ASSERT_THAT(result, IsOk());
  ASSERT_THAT(result->failures, SizeIs(1));
  EXPECT_EQ(result->failures[0].worker_id, 1);
  EXPECT_THAT(trainer.created, ElementsAre(0, 1, 1));
  EXPECT_EQ(Final(trainer), kUndisturbed[3]);
}

// Epochs of 3 s, with progress every 0.3 s: nobody hangs.
TEST_F(TrainerHealTest, WhoMakesProgressDoesNotHang) {
  KillAtLine warning("no progress");
  RecoveryTrainer trainer(Options(
      {.hang_timeout = absl::Seconds(2), .warn_after = absl::Seconds(2)}));
  const auto result = Train(&trainer, "9 TrainEpoch throw", 3, 3);
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->failures, IsEmpty());
  EXPECT_EQ(warning.line(), "");
  EXPECT_EQ(Final(trainer), kUndisturbed[3]);
}

// Without a hang_timeout that would be the only thing to be seen of it.
TEST_F(TrainerHealTest, AWorkerThatIsWaitedForWithoutLimitIsAWarning) {
  KillAtLine warning("no progress of worker 1 (RecoveryWorker 'worker-1')");
  RecoveryTrainer trainer(Options({.warn_after = absl::Seconds(1)}));
  const std::string file = temp_.path() + "/fault";
  trainer.at_epoch_start = [&](int epoch) {
    if (epoch != 1) return;
    warning.Watch(*trainer.workers()[1].Call<&RecoveryWorker::Pid>().Get());
    EXPECT_THAT(WriteFileAtomically(file, "1 TrainEpoch stop"), IsOk());
  };
  const auto result =
      trainer.Train({.epochs = 4, .config = {{"fault_file", file}}});
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(StartsWith("epoch 2/4: worker 1"), HasSubstr("signal 9")));
  EXPECT_THAT(warning.line(),
              AllOf(StartsWith("TrainEpoch: "),
                    HasSubstr("failure.hang_timeout is not set"),
                    Not(HasSubstr("worker 0"))));
}

TEST_F(TrainerHealTest, AServerThatIsWaitedForWithoutLimitIsAWarning) {
  KillAtLine warning("the parameter server has not answered");
  RecoveryTrainer trainer(Options({.warn_after = absl::Seconds(1)}));
  trainer.at_epoch_start = [&](int epoch) {
    if (epoch != 1) return;
    const int64_t pid = nodes_->Info(trainer.parameter_server()).pid();
    EXPECT_TRUE(StopProcess(pid));
    warning.Watch(pid);
  };
  const auto result = trainer.Train({.epochs = 4});
  EXPECT_THAT(
      std::string(result.status().message()),
      AllOf(StartsWith("epoch 2/4: synchronisation"), HasSubstr("signal 9")));
  EXPECT_THAT(warning.line(), HasSubstr("failure.hang_timeout is not set"));
}

TEST_F(TrainerHealTest, AHungWorkerWithoutToleranceEndsTrainAndItself) {
  RecoveryTrainer trainer(Options({.hang_timeout = absl::Seconds(3)}));
  std::vector<int64_t> pids;
  const std::string file = temp_.path() + "/fault";
  trainer.at_epoch_start = [&](int epoch) {
    if (epoch != 1) return;
    for (const auto& worker : trainer.workers()) {
      pids.push_back(*worker.Call<&RecoveryWorker::Pid>().Get());
    }
    EXPECT_THAT(WriteFileAtomically(file, "0 TrainEpoch stop"), IsOk());
  };
  const auto result =
      trainer.Train({.epochs = 4, .config = {{"fault_file", file}}});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(StartsWith("epoch 2/4: worker 0 (RecoveryWorker"),
                    HasSubstr("failure.hang_timeout")));
  ASSERT_THAT(pids, SizeIs(2));
  EXPECT_TRUE(Eventually(
      [&] { return !ProcessLives(pids[0]) && !ProcessLives(pids[1]); }));
}

// The first error stands, with the worker's own text; what comes of it or later
// stands behind it, and in result.json.
TEST_F(TrainerHealTest, BeyondMaxFailuresTheFirstErrorStands) {
  for (const FailurePolicy policy :
       {FailurePolicy::kHeal, FailurePolicy::kGroup}) {
    TrainerOptions options = Options({.max_failures = 1, .policy = policy});
    options.storage_path = temp_.path();
    options.name = policy == FailurePolicy::kHeal ? "heal" : "group";
    auto observer = std::make_shared<FailureObserver>();
    options.callbacks = {observer};
    RecoveryTrainer trainer(options);
    const auto result = Train(&trainer, "1 TrainEpoch always", 2);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnknown);
    // Made anew as a group, it fails in the first epoch: there is no checkpoint
    // to go on from.
    const std::string last = policy == FailurePolicy::kHeal ? "3" : "1";
    EXPECT_THAT(
        std::string(result.status().message()),
        AllOf(StartsWith("epoch 3/4: worker 1: RecoveryWorker.TrainEpoch on "
                         "'worker-1'"),
              HasSubstr("loss went up; then: epoch " + last + "/4: worker 1")));
    EXPECT_EQ(trainer.last_result().error, result.status());
    ASSERT_THAT(observer->failures, SizeIs(2));
    EXPECT_FALSE(observer->failures[0].fatal);
    EXPECT_TRUE(observer->failures[1].fatal);
    EXPECT_EQ(observer->failures[1].number, 2);
    const auto json = nlohmann::json::parse(*ReadFile(
        absl::StrCat(options.storage_path, "/", options.name, "/result.json")));
    ASSERT_THAT(json["failures"], SizeIs(2));
    EXPECT_EQ(json["failures"][0]["epoch"], 2);
    EXPECT_EQ(json["failures"][0]["worker"], 1);
    EXPECT_EQ(json["failures"][0]["fatal"], false);
    EXPECT_EQ(json["failures"][0]["error"]["code"], "UNKNOWN");
    std::remove((temp_.path() + "/fault").c_str());
  }
}

// Worker 0 fails first, because it loses its connection to worker 1.
TEST_F(TrainerHealTest, TheCauseStandsAndNotWhatCameOfIt) {
  RecoveryTrainer trainer(Options({}));
  const FileAtLogLine heard("the cause is looked for", temp_ / "fault.heard");
  const auto result = Train(&trainer, "1 TrainEpoch follow");
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(StartsWith("epoch 2/4: worker 1"), HasSubstr("signal 9"),
                    Not(HasSubstr("connection reset"))));
}

// The place of a lost worker is kept for the one that comes in its stead.
TEST_F(TrainerHealTest, NobodyElseGetsTheLostOnesPlace) {
  TestCluster nodes({.node_cpus = {2}});
  const Cluster cluster = nodes.Connect();
  std::optional<ActorHandle<RecoveryWorker>> other;
  auto observer = std::make_shared<FailureObserver>();
  observer->at_failure = [&](const WorkerFailure&) {
    other = *cluster.CreateActor<RecoveryWorker>({}, 7);
  };
  for (const FailurePolicy policy :
       {FailurePolicy::kHeal, FailurePolicy::kGroup}) {
    TrainerOptions options = Options({.max_failures = 1, .policy = policy});
    options.cluster = cluster;
    options.callbacks = {observer};
    RecoveryTrainer trainer(options);
    ASSERT_THAT(Train(&trainer, "1 TrainEpoch kill"), IsOk());
    EXPECT_EQ(Final(trainer), kUndisturbed[3]);
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(other->WaitReady(absl::Milliseconds(50))));
    trainer.Shutdown();  // Gives the places back.
    EXPECT_THAT(other->WaitReady(absl::Seconds(20)), IsOk());
    EXPECT_THAT(other->Kill(), IsOk());
  }
}

TEST_F(TrainerHealTest, OptionsThatCannotBe) {
  RecoveryTrainer trainer(Options({.max_failures = -2}));
  EXPECT_THAT(std::string(trainer.Train({}).status().message()),
              HasSubstr("failure.max_failures must be at least 0, or -1"));
  RecoveryTrainer other(Options({.hang_timeout = absl::ZeroDuration()}));
  EXPECT_THAT(std::string(other.Train({}).status().message()),
              HasSubstr("failure.hang_timeout must be above 0"));
  RecoveryTrainer third(Options({.warn_after = absl::ZeroDuration()}));
  EXPECT_THAT(std::string(third.Train({}).status().message()),
              HasSubstr("failure.warn_after must be above 0"));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
