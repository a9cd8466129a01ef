// TrainerOptions::overlap_sync, with real workers.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/overlap_worker.h"
#include "tests/train/quadratic_worker.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class TrainerOverlapTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {4}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  static TrainerOptions Options(int num_workers, int64_t sync_every,
                                bool overlap = true) {
    TrainerOptions options{.num_workers = num_workers, .cluster = *cluster_};
    options.sync_every = sync_every;
    options.overlap_sync = overlap;
    return options;
  }

  static double Model(const OverlapTrainer& trainer) {
    return *trainer.PullWeights()->at(0).second.data_ptr<double>();
  }

  // Expects all workers to have the server's model, to the last bit.
  static void ExpectEqualModels(const OverlapTrainer& trainer) {
    for (const auto& worker : trainer.workers()) {
      const auto weights = worker.Call<&OverlapWorker::GetWeights>().Get();
      ASSERT_THAT(weights, IsOk());
      EXPECT_EQ(*weights->at(0).second.data_ptr<double>(), Model(trainer));
    }
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};
TestCluster* TrainerOverlapTest::nodes_ = nullptr;
Cluster* TrainerOverlapTest::cluster_ = nullptr;

// The model after training in one thread, with the same operations.
double Simulate(int num_workers, int64_t steps, int64_t sync_every, int epochs,
                bool overlap) {
  std::vector<double> w(num_workers, 0.0), snapshot(num_workers);
  double mean = 0;
  const auto set_mean = [&] {
    mean = 0;
    for (const double x : w) mean += x;
    mean /= num_workers;
  };
  for (int epoch = 0; epoch < epochs; ++epoch) {
    bool runs = false;
    for (int64_t first = 0;; first += sync_every) {
      const int64_t count = std::clamp<int64_t>(steps - first, 0, sync_every);
      for (int i = 0; i < num_workers; ++i) {
        for (int64_t step = 0; step < count; ++step) {
          w[i] += 2.0 + 2.0 * i - w[i] * w[i] / 8;
        }
        if (runs) w[i] = count > 0 ? -snapshot[i] + mean + w[i] : mean;
      }
      runs = false;
      const bool last = count < sync_every;
      if (count > 0) {
        snapshot = w;
        set_mean();
        runs = overlap && !last;
        if (!runs) std::fill(w.begin(), w.end(), mean);
      }
      if (last) break;
    }
  }
  return mean;
}

// By hand, t = 2 and 4, one step a piece:
//   x = (2, 4)                         s = (2, 4), m = 3
//   x = (3.5, 6)       -> (4.5, 5)     s = that,   m = 4.75
//   x = (3.96875, 5.875) -> (4.21875, 5.625)       m = 4.921875
// and with nothing left to train, both have m. Without overlap the means are 3,
// 4.875, 4.904296875.
TEST_F(TrainerOverlapTest, AddsWhatIsOnePieceStaleToWhatWasTrainedSince) {
  OverlapTrainer trainer(Options(2, 1));
  const auto result = trainer.Train({.epochs = 1});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(Model(trainer), 4.921875);
  ExpectEqualModels(trainer);
  const EpochResult& epoch = result->history.at(0);
  // Means over the three pieces.
  EXPECT_DOUBLE_EQ(epoch.per_worker.at(0).at("x"), (2 + 3.5 + 3.96875) / 3);
  EXPECT_DOUBLE_EQ(epoch.per_worker.at(1).at("x"), (4 + 6 + 5.875) / 3);
  EXPECT_TRUE(epoch.synced);
  EXPECT_EQ(epoch.sync.version, 3);
  EXPECT_EQ(trainer.num_syncs, 3);
  EXPECT_EQ(trainer.GetSyncStats()->num_syncs, 3);
  EXPECT_GT(epoch.timing.sync, 0);
  EXPECT_LE(epoch.timing.sync + epoch.timing.compute, epoch.seconds);

  OverlapTrainer waits(Options(2, 1, /*overlap=*/false));
  ASSERT_THAT(waits.Train({.epochs = 1}), IsOk());
  EXPECT_EQ(Model(waits), 4.904296875);
}

// Pieces of 2, 2 and 1 steps, of 2 and 2 and none, and one that is all.
TEST_F(TrainerOverlapTest, EqualsTheSameArithmeticInOneThread) {
  for (const int64_t steps : {1, 4, 5}) {
    SCOPED_TRACE(absl::StrCat(steps, " steps"));
    OverlapTrainer trainer(Options(3, 2));
    const auto result =
        trainer.Train({.epochs = 3, .config = {{"steps", steps}}});
    ASSERT_THAT(result, IsOk());
    EXPECT_NEAR(Model(trainer), Simulate(3, steps, 2, 3, /*overlap=*/true),
                1e-12);
    if (steps > 2) {  // So it is no coincidence.
      EXPECT_GT(std::abs(Model(trainer) -
                         Simulate(3, steps, 2, 3, /*overlap=*/false)),
                1e-3);
    }
    ExpectEqualModels(trainer);
  }
}

// There, the mean is what the worker had: to the last bit.
TEST_F(TrainerOverlapTest, OneWorkerNoticesNothing) {
  OverlapTrainer trainer(Options(1, 1));
  ASSERT_THAT(trainer.Train({.epochs = 3, .config = {{"steps", 4}}}), IsOk());
  EXPECT_EQ(Model(trainer), Simulate(1, 12, 12, 1, /*overlap=*/false));
}

// The first synchronisation does not end before the second piece has begun.
TEST_F(TrainerOverlapTest, TheNextPieceIsTrainedMeanwhile) {
  OverlapTrainer trainer(Options(2, 1));
  ASSERT_THAT(trainer.Train({.epochs = 1, .config = {{"gate", true}}}), IsOk());
  EXPECT_EQ(Model(trainer), 4.921875);
}

TEST_F(TrainerOverlapTest, GoesOnFromACheckpointBitForBit) {
  TrainerOptions options = Options(2, 2);
  options.storage_path = temp_.path();
  options.name = "run";
  options.checkpoint = {.frequency = 1, .resume = "auto"};
  const Config config = {{"steps", 5}};
  ASSERT_THAT(OverlapTrainer(options).Train({.epochs = 2, .config = config}),
              IsOk());
  OverlapTrainer trainer(options);
  const auto result = trainer.Train({.epochs = 4, .config = config});
  ASSERT_THAT(result, IsOk());
  ASSERT_THAT(result->history, SizeIs(4));
  EXPECT_EQ(Model(trainer), Simulate(2, 5, 2, 4, /*overlap=*/true));
}

// Of two pieces under way at once, as it were, one is lost with its worker.
TEST_F(TrainerOverlapTest, AGroupMadeAnewTrainsWhatAnUndisturbedOneDoes) {
  const std::string fault = temp_.path() + "/fault";
  for (const std::string what :
       {"1 TrainSteps 1 kill", "0 LendWeights 1 error"}) {
    SCOPED_TRACE(what);
    ASSERT_THAT(WriteFileAtomically(fault, what), IsOk());
    TrainerOptions options = Options(2, 1);
    options.storage_path = temp_.path();
    options.name = what.substr(2, 10);
    options.checkpoint.frequency = 1;
    options.failure.max_failures = 1;
    OverlapTrainer trainer(options);
    const auto result = trainer.Train(
        {.epochs = 3, .config = {{"steps", 4}, {"fault_file", fault}}});
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(Model(trainer), Simulate(2, 4, 1, 3, /*overlap=*/true));
    ExpectEqualModels(trainer);
    ASSERT_THAT(result->failures, SizeIs(1));
    EXPECT_EQ(result->failures[0].epoch, 1);
  }
}

TEST_F(TrainerOverlapTest, AFailureBesideTrainingEndsIt) {
  const std::string fault = temp_.path() + "/fault";
  ASSERT_THAT(WriteFileAtomically(fault, "1 LendWeights 0 error"), IsOk());
  OverlapTrainer trainer(Options(2, 1));
  EXPECT_THAT(
      trainer.Train({.epochs = 1, .config = {{"fault_file", fault}}}),
      StatusIs(absl::StatusCode::kInternal,
               AllOf(HasSubstr("epoch 1/1: synchronisation beside training"),
                     HasSubstr("worker 1"), HasSubstr("weights are away"))));
  // And the next Train begins as if nothing had been.
  ASSERT_THAT(trainer.Train({.epochs = 1}), IsOk());
  EXPECT_EQ(Model(trainer), 4.921875);
}

TEST_F(TrainerOverlapTest, RefusesWhatItDoesNotGoWith) {
  const auto expect_refused = [](const TrainerOptions& options,
                                 const std::string& text) {
    EXPECT_THAT(OverlapTrainer(options).Train({}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  expect_refused(Options(2, 0), "no effect without sync_every");
  TrainerOptions heals = Options(2, 1);
  heals.failure = {.max_failures = 1, .policy = FailurePolicy::kHeal};
  expect_refused(heals, "does not go with failure.policy kHeal");
  TrainerOptions quorum = Options(2, 1);
  quorum.server_options.min_workers = 1;
  expect_refused(quorum, "does not go with server_options.min_workers");
  TrainerOptions pieces = Options(2, 1);
  pieces.server_options.piece_bytes = 1 << 20;
  expect_refused(pieces, "know no snapshots");
  EXPECT_THAT(QuadraticTrainer(Options(2, 1), {}).Train({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the worker class has no")));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
