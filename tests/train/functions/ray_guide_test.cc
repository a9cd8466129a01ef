// What train/README.md shows of train functions, block by block, does what the
// blocks of Ray Train's guides do.

#include "tests/train/functions/ray_guide.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/readme_code.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "train/checkpoint.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ResultOf;
using ::testing::SizeIs;

TEST(RayGuideReadmeTest, TheReadmeShowsTheCodeThatIsTestedHere) {
  ExpectReadmeSectionShows("train/README.md",
                           "Train functions: Ray Train, block by block",
                           {"tests/train/functions/ray_guide.h",
                            "tests/train/functions/ray_guide.cc"});
}

// The blocks write to "runs" in the current folder.
class RayGuideTest : public ::testing::Test {
 protected:
  RayGuideTest() { std::filesystem::current_path(temp_.path()); }
  ~RayGuideTest() override { std::filesystem::current_path(before_); }

  std::set<std::string> Checkpoints(const std::string& run) const {
    std::set<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator(temp_ / ("runs/" + run))) {
      const std::string name = entry.path().filename().string();
      if (EpochsOfCheckpointName(name).has_value()) names.insert(name);
    }
    return names;
  }

  const TempFolder temp_;
  const std::filesystem::path before_ = std::filesystem::current_path();
};

// Nodes that the blocks find by themselves, as programs find a cluster.
class Nodes {
 public:
  explicit Nodes(double gpus)
      : cluster_({.node_cpus = {4},
                  .head = {.infeasible_timeout = absl::Milliseconds(300)},
                  .configure_node = [gpus](WorkerDaemon::Options* node) {
                    if (gpus == 0) return;
                    (*node->resources.mutable_quantity())["GPU"] = gpus;
                  }}) {
    setenv("MINIRAY_ADDRESS", cluster_.address().c_str(), 1);
  }
  ~Nodes() { unsetenv("MINIRAY_ADDRESS"); }

 private:
  TestCluster cluster_;
};

// The mean of the ranks' losses, epoch by epoch.
std::vector<double> Losses(const absl::StatusOr<Result>& result) {
  EXPECT_THAT(result, IsOk());
  std::vector<double> losses;
  if (!result.ok()) return losses;
  for (const EpochResult& epoch : result->history) {
    double sum = 0;
    for (const Metrics& metrics : epoch.per_worker) sum += metrics.at("loss");
    losses.push_back(sum / static_cast<double>(epoch.per_worker.size()));
  }
  return losses;
}

void ExpectLearned(const std::vector<double>& losses) {
  ASSERT_THAT(losses, SizeIs(10));
  EXPECT_GT(losses.front(), 0.1);
  EXPECT_LT(losses.back(), 0.01 * losses.front());
}

// But for rounding.
void ExpectEqualTraining(const std::vector<double>& a,
                         const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 1e-4 * b[i] + 1e-7) << "epoch " << i;
  }
}

TEST_F(RayGuideTest, EveryWorkerRunsTheFunction) {
  for (const auto& [scaling, num_ranks] :
       {std::pair(ScalingConfig{.num_workers = 0}, 1), std::pair(OneCpu(), 1),
        std::pair(ScalingConfig{.num_workers = 2}, 2)}) {
    const auto result = RunTrainFunc(scaling);
    ASSERT_THAT(result, IsOk());
    ASSERT_THAT(result->history, SizeIs(1));
    ASSERT_THAT(result->history[0].per_worker, SizeIs(num_ranks));
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Metrics& metrics = result->history[0].per_worker[rank];
      EXPECT_EQ(metrics.at("rank"), rank);
      EXPECT_EQ(metrics.at("workers"), num_ranks);
    }
  }
}

TEST_F(RayGuideTest, TwoWorkersTrainTheModelThatOneProcessTrains) {
  const auto alone = Losses(FitPoints({.num_workers = 0}));
  ExpectLearned(alone);
  ExpectEqualTraining(Losses(FitPoints({.num_workers = 2})), alone);
}

TEST_F(RayGuideTest, AccumulatedBatchesMakeTheStepsOfLargeOnes) {
  const auto large = Losses(FitPoints({.num_workers = 0}));
  for (const int num_workers : {0, 2}) {
    TorchTrainer trainer(TrainWithAccumulation,
                         {.scaling = {.num_workers = num_workers}});
    ExpectEqualTraining(Losses(trainer.Fit()), large);
  }
}

TEST_F(RayGuideTest, HalfPrecisionLearnsAsFarAsItsDigitsGo) {
  const auto whole = Losses(FitPoints({.num_workers = 0}));
  ASSERT_THAT(whole, SizeIs(10));
  for (const int num_workers : {0, 2}) {
    TorchTrainer trainer(TrainInHalfPrecision,
                         {.scaling = {.num_workers = num_workers}});
    const auto result = trainer.Fit();
    const auto losses = Losses(result);
    ExpectLearned(losses);
    ASSERT_FALSE(HasFatalFailure());
    // float32 comes much further.
    EXPECT_GT(losses.back(), 10 * whole.back());
    // No gradient overflowed, and it takes longer for the scale to grow.
    EXPECT_EQ(result->metrics().at("scale"), LossScalerOptions().initial_scale);
  }
}

TEST_F(RayGuideTest, FilesAreDealtToTheWorkers) {
  std::filesystem::create_directory("points");
  for (int file = 0; file < 2; ++file) {
    std::ofstream csv("points/" + std::to_string(file) + ".csv");
    csv << "a,unused,b,sum\n";
    for (int i = 0; i < 160; ++i) {
      const double a = std::cos(2 * i + file), b = std::cos(5 * i + file);
      csv << a << ",text," << b << "," << a + b << "\n";
    }
  }
  const std::string folder = std::filesystem::absolute("points");
  for (const int num_workers : {0, 2}) {
    const auto result = FitOnFiles(folder, {.num_workers = num_workers});
    ExpectLearned(Losses(result));
    ASSERT_FALSE(HasFatalFailure());
    double rows = 0;
    for (const Metrics& metrics : result->history[0].per_worker) {
      rows += metrics.at("rows");
    }
    EXPECT_EQ(rows, 320);
  }
  EXPECT_THAT(FitOnFiles(folder + "/none", {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("points/none")));
}

TEST_F(RayGuideTest, ARunFromACheckpointIsTheOneThatNeverStopped) {
  const auto whole = FitWithCheckpoints("whole", 30);
  ASSERT_THAT(whole, IsOk());
  EXPECT_THAT(Checkpoints("whole"),
              ElementsAre("checkpoint_000010", "checkpoint_000020",
                          "checkpoint_000030"));

  const auto first = FitWithCheckpoints("first", 25);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(first->history, SizeIs(25));
  // The last one's in any case.
  EXPECT_THAT(Checkpoints("first"),
              ElementsAre("checkpoint_000010", "checkpoint_000020",
                          "checkpoint_000025"));
  const auto second = FitWithCheckpoints("second", 30, first->checkpoint);
  ASSERT_THAT(second, IsOk());
  ASSERT_THAT(second->history, SizeIs(30));
  for (int epoch = 0; epoch < 30; ++epoch) {
    EXPECT_EQ(second->history[epoch].per_worker,
              whole->history[epoch].per_worker)
        << epoch;
  }
  EXPECT_THAT(Checkpoints("second"), ElementsAre("checkpoint_000030"));
  const auto a = ReadCheckpoint(whole->checkpoint);
  const auto b = ReadCheckpoint(second->checkpoint);
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  // Not training.pt: an optimizer's state goes by its parameters' addresses.
  EXPECT_EQ(a->workers[0].at("model.pt"), b->workers[0].at("model.pt"));
}

TEST_F(RayGuideTest, TunedCheckpointsAreEveryTenthAndTheLastThree) {
  TorchTrainerOptions options = Tuned(/*epochs=*/40);
  EXPECT_THAT(Validate(options), IsOk());
  EXPECT_EQ(WorkerResources(options.scaling).cpu, 4);
  EXPECT_EQ(WorkerResources(options.scaling).gpu, 1);
  options.scaling = {.num_workers = 2};
  TorchTrainer trainer(TrainWithCheckpoints, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(40));
  EXPECT_THAT(Checkpoints("tuned"),
              ElementsAre("checkpoint_000020", "checkpoint_000030",
                          "checkpoint_000040"));
}

TEST_F(RayGuideTest, WithoutGpusTheErrorSaysWhatIsAskedForAndWhatThereIs) {
  const Nodes nodes(/*gpus=*/0);
  const auto lacks = [](const std::string& asked) {
    return StatusIs(absl::StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr(asked), HasSubstr("CPU 4"),
                          HasSubstr("use_gpu"), HasSubstr("num_workers")));
  };
  EXPECT_THAT(RunTrainFunc(OneGpu()), lacks("1 x (CPU 1, GPU 1)"));
  EXPECT_THAT(RunTrainFunc(FourGpus()), lacks("4 x (CPU 1, GPU 1)"));
  EXPECT_THAT(FitTuned(), lacks("8 x (CPU 4, GPU 1)"));
}

TEST_F(RayGuideTest, NodesWithGpusGiveOneToEachWorker) {
  const Nodes nodes(/*gpus=*/4);
  EXPECT_THAT(RunTrainFunc(OneGpu()), IsOk());
  const auto result = RunTrainFunc(FourGpus());
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history[0].per_worker, SizeIs(4));
  // A model is moved there: LibTorch must have such a device, as with the GPUs
  // of tests/gpu.
  EXPECT_THAT(
      FitPoints(OneGpu()).status(),
      AnyOf(
          IsOk(),
          ResultOf(
              [](const absl::Status& s) { return std::string(s.message()); },
              AllOf(HasSubstr("rank 0"), HasSubstr("finds no CUDA device")))));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
