// Train functions whose ranks train one model together: that they come to what
// one process comes to, with failures by real signals too.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/functions/curve.h"
#include "train/functions/torch_trainer.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int kEpochs = 5;
constexpr double kTolerance = 1e-5;
constexpr int kParameters = 21;  // Of FitCurve.

class PreparedTrainingTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {4}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  // `batch` samples a step, of all ranks together.
  TorchTrainerOptions Options(int num_workers, int batch) {
    TorchTrainerOptions options;
    options.config = {{"epochs", kEpochs},
                      {"batch_size", batch / std::max(1, num_workers)}};
    options.scaling.num_workers = num_workers;
    options.run.storage_path = temp_.path();
    options.run.failure.max_failures = 1;
    if (num_workers > 0) options.cluster = *cluster_;
    return options;
  }

  Result Fit(TorchTrainerOptions options,
             void (*function)(Context&) = FitCurve) {
    TorchTrainer trainer(function, std::move(options));
    const absl::StatusOr<Result> result = trainer.Fit();
    EXPECT_THAT(result, IsOk());
    return trainer.last_result();
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};

TestCluster* PreparedTrainingTest::nodes_ = nullptr;
Cluster* PreparedTrainingTest::cluster_ = nullptr;

// Each report of `actual` once, all ranks with the parameters of `expected`.
void ExpectSame(const Result& expected, const Result& actual, int num_workers) {
  ASSERT_THAT(expected.history, SizeIs(kEpochs));
  ASSERT_THAT(actual.history, SizeIs(kEpochs));
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    EXPECT_EQ(actual.history[epoch].epoch, epoch);
    const auto& ranks = actual.history[epoch].per_worker;
    ASSERT_THAT(ranks, SizeIs(num_workers));
    int parameters = 0;
    for (const auto& [name, value] : expected.history[epoch].metrics) {
      if (name[0] != 'p') continue;
      ++parameters;
      EXPECT_NEAR(ranks[0].at(name), value, kTolerance) << name << epoch;
      for (const Metrics& rank : ranks) {
        EXPECT_EQ(rank.at(name), ranks[0].at(name)) << name << epoch;
      }
    }
    EXPECT_GE(parameters, kParameters);
  }
}

// --- Numbers. 480 samples: 10 steps an epoch, 50 in all.

TEST_F(PreparedTrainingTest, FourRanksEqualOneProcess) {
  const Result alone = Fit(Options(0, 48));
  ExpectSame(alone, Fit(Options(4, 48)), 4);
  // It learns at all, and so the parameters move.
  EXPECT_NE(alone.history[0].metrics.at("p0"),
            alone.history[kEpochs - 1].metrics.at("p0"));
}

TEST_F(PreparedTrainingTest, AccumulationOfFourEqualsOneBatch) {
  TorchTrainerOptions options = Options(2, 12);
  options.config.Set("accumulate", 4);
  ExpectSame(Fit(Options(1, 48)), Fit(std::move(options)), 2);
}

TEST_F(PreparedTrainingTest, AGanOfTwoModelsEqualsOneProcess) {
  ExpectSame(Fit(Options(0, 48), FitGan), Fit(Options(4, 48), FitGan), 4);
}

TEST_F(PreparedTrainingTest, UnevenShardsNeverHangAndStayAlike) {
  // 69, 69, 69, 69, 68, 68, 68 samples: batches of 34 are 3, 3, 3, 3, 2, ...
  TorchTrainerOptions options = Options(7, 7 * 34);
  options.scaling.resources_per_worker = {.cpu = 0.5};
  options.config.Set("uneven", true);
  const Result result = Fit(options);
  ExpectSame(result, result, 7);
  EXPECT_EQ(result.history[0].per_worker[0].at("seen"), 69);
  EXPECT_EQ(result.history[0].per_worker[6].at("seen"), 68);
}

// --- Failures.

TEST_F(PreparedTrainingTest, KilledRanksChangeNothingOfTheOutcome) {
  const Result undisturbed = Fit(Options(3, 48));
  for (const std::string where : {"backward", "save", "barrier"}) {
    SCOPED_TRACE(where);
    ASSERT_THAT(WriteFileAtomically(temp_ / "fault",
                                    absl::StrCat("1 2 ", where, " kill")),
                IsOk());
    TorchTrainerOptions options = Options(3, 48);
    options.config.Set("fault_file", temp_ / "fault");
    const Result result = Fit(std::move(options));
    ExpectSame(undisturbed, result, 3);
    ASSERT_THAT(result.failures, SizeIs(1));
    EXPECT_EQ(result.failures[0].worker_id, 1);
    EXPECT_THAT(std::string(result.failures[0].error.message()),
                AllOf(StartsWith("rank 1 "), HasSubstr("signal 9")));
    EXPECT_EQ(result.metrics().at("generation"), 1);
  }
}

TEST_F(PreparedTrainingTest, ADeadRankEndsTheWaitOfTheOthers) {
  ASSERT_THAT(WriteFileAtomically(temp_ / "fault", "0 1 backward kill"),
              IsOk());
  TorchTrainerOptions options = Options(3, 48);
  options.config.Set("fault_file", temp_ / "fault");
  options.config.Set("felt", temp_ / "felt");
  options.run.collective_timeout = absl::Minutes(30);
  const absl::Time start = absl::Now();
  Fit(std::move(options));
  for (const int rank : {1, 2}) {
    int64_t felt = 0;
    ASSERT_TRUE(absl::SimpleAtoi(*ReadFile(temp_ / absl::StrCat("felt.", rank)),
                                 &felt));
    EXPECT_LT(absl::FromUnixMillis(felt) - start, absl::Minutes(1));
  }
}

TEST_F(PreparedTrainingTest, TheFirstRealErrorIsKept) {
  ASSERT_THAT(WriteFileAtomically(temp_ / "fault", "2 1 backward throw"),
              IsOk());
  TorchTrainerOptions options = Options(3, 48);
  options.config.Set("fault_file", temp_ / "fault");
  options.run.failure.max_failures = 0;
  TorchTrainer trainer(FitCurve, options);
  EXPECT_THAT(std::string(trainer.Fit().status().message()),
              AllOf(StartsWith("rank 2 "),
                    HasSubstr("threw std::runtime_error: loss went up"),
                    Not(HasSubstr("also"))));
}

TEST_F(PreparedTrainingTest, AStoppedRankIsNoticedByTheTimeoutOfCollectives) {
  ASSERT_THAT(WriteFileAtomically(temp_ / "fault", "1 1 backward stop"),
              IsOk());
  const Result undisturbed = Fit(Options(3, 48));
  TorchTrainerOptions options = Options(3, 48);
  options.config.Set("fault_file", temp_ / "fault");
  options.run.collective_timeout = absl::Seconds(5);
  options.run.abort_timeout = absl::Seconds(2);
  const Result result = Fit(std::move(options));
  ExpectSame(undisturbed, result, 3);
  ASSERT_THAT(result.failures, SizeIs(1));
  EXPECT_THAT(result.failures[0].error,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("has not failed: rank 1 (process "),
                             HasSubstr("does not answer"))));
}

// Comes to PrepareModel on some ranks only.
void PrepareOnSome(Context& ctx) {
  const std::string how = ctx.config<std::string>("how");
  if (ctx.rank() == 1 && how == "return") return;
  if (ctx.rank() == 1 && how == "throw") throw std::runtime_error("no data");
  ctx.process_group();
}
MINIRAY_TRAIN_FUNC(PrepareOnSome);

TEST_F(PreparedTrainingTest, RanksThatDoNotComeAreNamed) {
  TorchTrainerOptions options = Options(3, 48);
  options.config.Set("how", "return");
  options.run.failure.max_failures = 0;
  options.run.collective_timeout = absl::Seconds(2);
  TorchTrainer trainer(PrepareOnSome, options);
  EXPECT_THAT(trainer.Fit(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      HasSubstr("ranks are missing: 1")));
}

TEST_F(PreparedTrainingTest, ARankThatThrowsEndsTheRendezvous) {
  TorchTrainerOptions options = Options(3, 48);
  options.config.Set("how", "throw");
  options.run.failure.max_failures = 0;
  options.run.collective_timeout = absl::Minutes(30);
  TorchTrainer trainer(PrepareOnSome, options);
  EXPECT_THAT(std::string(trainer.Fit().status().message()),
              AllOf(StartsWith("rank 1 "), HasSubstr("no data"),
                    Not(HasSubstr("also"))));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
