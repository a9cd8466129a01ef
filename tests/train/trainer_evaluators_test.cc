// TrainerOptions::num_evaluators: evaluation beside training, with real workers
// and evaluators.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/event_file_reader.h"
#include "tests/train/points_worker.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

class TrainerEvaluatorsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {8}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  static TrainerOptions Options(int num_evaluators) {
    TrainerOptions options{.num_workers = 2, .cluster = *cluster_};
    options.evaluate_every = 1;
    options.num_evaluators = num_evaluators;
    return options;
  }

  // Evaluations of the same models in the workers, training waiting.
  static std::vector<EpochResult> Expected(int epochs) {
    PointsTrainer trainer(Options(0));
    const auto result = trainer.Train({.epochs = epochs});
    EXPECT_THAT(result, IsOk());
    return result->history;
  }

  static void ExpectEqual(const std::vector<EpochResult>& history,
                          const std::vector<EpochResult>& expected) {
    ASSERT_THAT(history, SizeIs(expected.size()));
    for (size_t i = 0; i < history.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("epoch ", i));
      const Metrics& metrics = history[i].metrics;
      const Metrics& others = expected[i].metrics;
      EXPECT_EQ(metrics.at("loss"), others.at("loss"));  // Of training.
      EXPECT_EQ(metrics.at("eval/accuracy"), others.at("eval/accuracy"));
      EXPECT_EQ(metrics.at("eval/samples"), 101);
      EXPECT_NEAR(metrics.at("eval/loss"), others.at("eval/loss"),
                  1e-14 * others.at("eval/loss"));
      EXPECT_GT(metrics.at("eval/seconds"), 0);
    }
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};
TestCluster* TrainerEvaluatorsTest::nodes_ = nullptr;
Cluster* TrainerEvaluatorsTest::cluster_ = nullptr;

// 101 test points over 3 evaluators, or all for one.
TEST_F(TrainerEvaluatorsTest, EqualTheWorkersAndOneProcess) {
  const std::vector<EpochResult> expected = Expected(3);
  // Each epoch has another model, so none is taken for another's.
  EXPECT_NE(expected[0].metrics.at("eval/loss"),
            expected[1].metrics.at("eval/loss"));
  for (const int num_evaluators : {1, 3}) {
    PointsTrainer trainer(Options(num_evaluators));
    const auto result = trainer.Train({.epochs = 3});
    ASSERT_THAT(result, IsOk());
    ExpectEqual(result->history, expected);
    EXPECT_THAT(trainer.workers(), SizeIs(2));
    PointsWorker one(PointsOptions{});
    ASSERT_THAT(one.SetWeights(*trainer.PullWeights()), IsOk());
    EXPECT_EQ(result->metrics().at("eval/accuracy"),
              one.EvaluateShard(0, 1)->at("accuracy"));
  }
}

// The first evaluation does not end before epoch 1 is being trained. It then
// stands where its epoch does, and in the file behind it.
TEST_F(TrainerEvaluatorsTest, EvaluateWhileTheNextEpochIsTrained) {
  TrainerOptions options = Options(2);
  options.storage_path = temp_.path();
  options.name = "run";
  PointsTrainer trainer(options, {.gate_file = temp_.path() + "/gate"});
  const auto result = trainer.Train({.epochs = 2});
  ASSERT_THAT(result, IsOk());
  ExpectEqual(result->history, Expected(2));
  EXPECT_THAT(trainer.events, ElementsAre("epoch end 0", "evaluation 0",
                                          "epoch end 1", "evaluation 1"));

  const std::vector<std::string> lines =
      absl::StrSplit(*ReadFile(result->path + "/history.jsonl"), '\n');
  ASSERT_THAT(lines, SizeIs(5));  // The last one is empty.
  for (const int epoch : {0, 1}) {
    const Json trained = Json::parse(lines[2 * epoch]);
    EXPECT_EQ(trained["epoch"], epoch);
    EXPECT_FALSE(trained["metrics"].contains("eval/accuracy"));
    const Json evaluated = Json::parse(lines[2 * epoch + 1])["evaluation"];
    EXPECT_EQ(evaluated["epoch"], epoch);
    EXPECT_EQ(evaluated["metrics"]["eval/accuracy"].get<double>(),
              result->history[epoch].metrics.at("eval/accuracy"));
    EXPECT_FALSE(evaluated["metrics"].contains("loss"));
  }
  const Json whole = Json::parse(*ReadFile(result->path + "/result.json"));
  EXPECT_EQ(whole["history"][0]["metrics"]["eval/loss"].get<double>(),
            result->history[0].metrics.at("eval/loss"));
  std::vector<int64_t> steps;
  for (const auto& entry : std::filesystem::directory_iterator(result->path)) {
    if (!absl::StrContains(entry.path().string(), "tfevents")) continue;
    for (const ReadEvent& event :
         ReadEvents(*ReadFile(entry.path().string()))) {
      if (event.scalars.count("eval/accuracy") > 0) steps.push_back(event.step);
    }
  }
  EXPECT_THAT(steps, ElementsAre(0, 1));
}

// A checkpoint has the evaluation of its epoch, by which it may be the best;
// and what goes on from it has that of the epochs before.
TEST_F(TrainerEvaluatorsTest, CheckpointsWaitForThem) {
  TrainerOptions options = Options(1);
  options.evaluate_every = 2;
  options.storage_path = temp_.path();
  options.name = "run";
  options.checkpoint = {
      .frequency = 2, .score_metric = "eval/loss", .resume = "auto"};
  {
    PointsTrainer trainer(options);
    const auto result = trainer.Train({.epochs = 2});
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->warnings, IsEmpty());
    EXPECT_THAT(result->best_checkpoint, HasSubstr("checkpoint_000002"));
  }
  PointsTrainer trainer(options);
  const auto result = trainer.Train({.epochs = 4});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(trainer.events,
              ElementsAre("epoch end 2", "epoch end 3", "evaluation 3"));
  const std::vector<EpochResult> expected = Expected(4);
  for (const int epoch : {1, 3}) {
    EXPECT_EQ(result->history[epoch].metrics.at("eval/accuracy"),
              expected[epoch].metrics.at("eval/accuracy"));
  }
  EXPECT_THAT(result->best_checkpoint, HasSubstr("checkpoint_000004"));
  // Written anew as training went on, each in its epoch; then as they came.
  const std::vector<std::string> lines =
      absl::StrSplit(*ReadFile(result->path + "/history.jsonl"), '\n');
  ASSERT_THAT(lines, SizeIs(6));
  EXPECT_TRUE(Json::parse(lines[1])["metrics"].contains("eval/loss"));
  EXPECT_EQ(Json::parse(lines[4])["evaluation"]["epoch"], 3);
}

// All are made anew, and it ends as if nothing had been.
TEST_F(TrainerEvaluatorsTest, OneThatFailsIsAFailureOfTheGroup) {
  const std::string fault = temp_.path() + "/fault";
  const std::vector<EpochResult> expected = Expected(3);
  for (const FailurePolicy policy :
       {FailurePolicy::kGroup, FailurePolicy::kHeal}) {
    for (const std::string how : {"kill", "error"}) {
      SCOPED_TRACE(how);
      ASSERT_THAT(WriteFileAtomically(fault, how), IsOk());
      TrainerOptions options = Options(2);
      options.failure = {.max_failures = 1, .policy = policy};
      PointsTrainer trainer(options, {.fault_file = fault});
      const auto result = trainer.Train({.epochs = 3});
      ASSERT_THAT(result, IsOk());
      ExpectEqual(result->history, expected);
      ASSERT_THAT(result->failures, SizeIs(1));
      EXPECT_THAT(
          std::string(result->failures[0].error.message()),
          AllOf(HasSubstr("evaluation of epoch 1 beside training: evaluator"),
                HasSubstr(how == "kill" ? "signal 9" : "data are away")));
    }
  }
}

TEST_F(TrainerEvaluatorsTest, WithoutAFailureConfigOneThatFailsEndsTraining) {
  const std::string fault = temp_.path() + "/fault";
  ASSERT_THAT(WriteFileAtomically(fault, "error"), IsOk());
  PointsTrainer trainer(Options(1), {.fault_file = fault});
  EXPECT_THAT(trainer.Train({.epochs = 3}),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("evaluation of epoch 1 beside training: "
                                       "evaluator 0"),
                             HasSubstr("the test data are away"))));
}

TEST_F(TrainerEvaluatorsTest, AHungOneIsAFailure) {
  TrainerOptions options = Options(1);
  options.failure.hang_timeout = absl::Seconds(5);
  // The gate never opens: there is one epoch.
  PointsTrainer trainer(options, {.gate_file = temp_.path() + "/gate"});
  EXPECT_THAT(trainer.Train({.epochs = 1}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("evaluator 0 has not returned for 5s")));
}

TEST_F(TrainerEvaluatorsTest, OptionsThatCannotBeAreErrors) {
  TrainerOptions options = Options(-1);
  EXPECT_THAT(PointsTrainer(options).Train({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_evaluators must be 1 or more")));
  options = Options(1);
  options.evaluate_every = 0;
  EXPECT_THAT(PointsTrainer(options).Train({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no effect without evaluate_every")));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
