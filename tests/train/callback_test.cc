// Callbacks of a trainer with real workers.

#include "train/callback.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/quadratic_worker.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes what it sees into the trainer's own list of events.
class Recorder : public Callback {
 public:
  explicit Recorder(std::string name) : name_(std::move(name)) {}

  std::vector<std::string>* events = nullptr;
  int stop_after = -1;
  int throw_after = -1;
  std::vector<std::string> warnings;  // To say after each epoch.
  Result result;                      // Of the last OnTrainEnd.

  void OnTrainStart(TrainContext& context) override {
    Add("train start " + std::to_string(context.num_workers()) + " " +
        std::to_string(context.epochs()));
  }
  void OnEpochStart(TrainContext& context, int epoch) override {
    Add("epoch start " + std::to_string(epoch));
  }
  void OnSync(TrainContext& context, int epoch,
              const ps::SyncResult& result) override {
    Add("sync " + std::to_string(epoch) + " version " +
        std::to_string(result.version));
  }
  void OnEpochEnd(TrainContext& context, const EpochResult& result) override {
    Add("epoch end " + std::to_string(result.epoch));
    for (const std::string& warning : warnings) context.Warn(warning);
    if (result.epoch == throw_after) throw std::runtime_error("no more paper");
    if (result.epoch == stop_after) context.RequestStop();
  }
  void OnTrainEnd(TrainContext& context, const Result& end) override {
    Add("train end");
    result = end;
  }

 private:
  void Add(const std::string& what) { events->push_back(name_ + " " + what); }

  const std::string name_;
};

class CallbackTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {8}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  TrainerOptions TwoWorkers() const {
    return {
        .num_workers = 2, .cluster = *cluster_, .callbacks = {first_, second_}};
  }
  // Both record into the trainer's events.
  void Attach(QuadraticTrainer& trainer) {
    first_->events = second_->events = &trainer.events;
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  const std::shared_ptr<Recorder> first_ = std::make_shared<Recorder>("1st");
  const std::shared_ptr<Recorder> second_ = std::make_shared<Recorder>("2nd");
};
TestCluster* CallbackTest::nodes_;
Cluster* CallbackTest::cluster_;

TEST_F(CallbackTest, ComeAfterTheTrainersHooksInOrder) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  Attach(trainer);
  const auto result = trainer.Train({.epochs = 1});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(
      trainer.events,
      ElementsAre("train start", "1st train start 2 1", "2nd train start 2 1",
                  "epoch start 0", "1st epoch start 0", "2nd epoch start 0",
                  "sync 0", "1st sync 0 version 1", "2nd sync 0 version 1",
                  "epoch end 0", "1st epoch end 0", "2nd epoch end 0",
                  "train end", "1st train end", "2nd train end"));
  EXPECT_TRUE(second_->result.error.ok());
  EXPECT_EQ(second_->result.metrics(), result->metrics());
  EXPECT_GT(second_->result.seconds, 0);
}

TEST_F(CallbackTest, MayStopTraining) {
  TrainerOptions options = TwoWorkers();
  options.sync_interval = 10;
  QuadraticTrainer trainer(options, {});
  Attach(trainer);
  second_->stop_after = 1;
  const auto result = trainer.Train({.epochs = 100});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->history.size(), 2);
  EXPECT_TRUE(result->history[1].synced);
}

TEST_F(CallbackTest, SeeTheErrorThatEndsTraining) {
  QuadraticTrainer trainer(TwoWorkers(), {.faults = {{1, {1, "throw"}}}});
  Attach(trainer);
  const auto result = trainer.Train({.epochs = 5});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(trainer.events.back(), "2nd train end");
  EXPECT_EQ(second_->result.error, result.status());
  EXPECT_EQ(second_->result.history.size(), 1);
  EXPECT_EQ(trainer.last_result().error, result.status());
  EXPECT_EQ(trainer.last_result().history.size(), 1);
}

TEST_F(CallbackTest, SeeTheEndOfATrainingThatDidNotStart) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  Attach(trainer);
  const auto result = trainer.Train({.epochs = 1, .config = {{"lr", "fast"}}});
  EXPECT_THAT(trainer.events, ElementsAre("1st train end", "2nd train end"));
  EXPECT_EQ(first_->result.error, result.status());
  EXPECT_EQ(first_->result.error.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CallbackTest, TheirExceptionsPassThroughTrain) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  Attach(trainer);
  first_->throw_after = 0;
  EXPECT_THROW(trainer.Train({.epochs = 5}).IgnoreError(), std::runtime_error);
  EXPECT_EQ(trainer.events.back(), "2nd train end");
  EXPECT_THAT(std::string(second_->result.error.message()),
              AllOf(HasSubstr("an exception"), HasSubstr("no more paper")));
  trainer.Shutdown();
  first_->throw_after = -1;
  EXPECT_TRUE(trainer.Train({.epochs = 1}).ok());
}

TEST_F(CallbackTest, WarningsStandInTheResultOnce) {
  QuadraticTrainer trainer(TwoWorkers(), {});
  Attach(trainer);
  first_->warnings = {"the disk is full", "it is hot"};
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->warnings, ElementsAre("the disk is full", "it is hot"));
  EXPECT_EQ(second_->result.warnings, result->warnings);
}

TEST_F(CallbackTest, NullIsRefused) {
  TrainerOptions options = TwoWorkers();
  options.callbacks = {first_, nullptr};
  QuadraticTrainer trainer(options, {});
  Attach(trainer);
  const absl::Status status = trainer.Train({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("callbacks[1] is null"));
  EXPECT_TRUE(trainer.events.empty());
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
