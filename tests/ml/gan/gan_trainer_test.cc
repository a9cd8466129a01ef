// GanTrainer with real worker processes.

#include "ml/gan/gan_trainer.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/training_run.h"
#include "tests/ml/cli/text_bar.h"
#include "tests/ml/gan/gan_testutil.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ml {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

GanWorkerOptions TinyOptions() {
  return {.dataset = "synthetic",
          .limit = 64,
          .batch_size = 16,
          .latent_dim = 8,
          .seed = 5};
}

class GanTrainerTest : public ::testing::Test {
 protected:
  train::TrainerOptions Options(int sync_interval) {
    return {.num_workers = 2,
            .cluster = cluster_.Connect(),
            .sync_interval = sync_interval};
  }

  static std::vector<NamedTensors> WeightsOf(const GanTrainer& trainer) {
    std::vector<NamedTensors> all;
    for (const auto& worker : trainer.workers()) {
      all.push_back(*worker.Call<&GanWorker::GetWeights>().Get());
    }
    return all;
  }

  TestCluster cluster_;
};

TEST_F(GanTrainerTest, WorkersEndWithTheSameBits) {
  GanTrainer trainer(Options(5), TinyOptions());
  const absl::StatusOr<train::Result> result = trainer.Train({.epochs = 2});
  ASSERT_EQ(result.status(), absl::OkStatus());
  ASSERT_EQ(result->history.size(), 2u);
  EXPECT_FALSE(result->history[0].synced);
  EXPECT_TRUE(result->history[1].synced);
  EXPECT_EQ(result->history[1].metrics.at("samples"), 64);
  const std::vector<NamedTensors> weights = WeightsOf(trainer);
  EXPECT_TRUE(Equal(weights[0], weights[1]));
  EXPECT_TRUE(Equal(weights[0], *trainer.PullWeights()));
}

TEST_F(GanTrainerTest, SameSeedGivesTheSameRun) {
  GanTrainer first(Options(1), TinyOptions());
  ASSERT_EQ(first.Train({.epochs = 2}).status(), absl::OkStatus());
  const NamedTensors weights = *first.PullWeights();
  first.Shutdown();
  GanTrainer second(Options(1), TinyOptions());
  ASSERT_EQ(second.Train({.epochs = 2}).status(), absl::OkStatus());
  EXPECT_TRUE(Equal(weights, *second.PullWeights()));
}

TEST_F(GanTrainerTest, TwoServersGiveTheRunOfOne) {
  GanTrainer one(Options(1), TinyOptions());
  ASSERT_EQ(one.Train({.epochs = 2}).status(), absl::OkStatus());
  const NamedTensors weights = *one.PullWeights();
  one.Shutdown();
  train::TrainerOptions options = Options(1);
  options.server_options.num_shards = 2;
  GanTrainer two(options, TinyOptions());
  ASSERT_EQ(two.Train({.epochs = 2}).status(), absl::OkStatus());
  EXPECT_TRUE(Equal(weights, *two.PullWeights()));
}

TEST_F(GanTrainerTest, CompressedWeightsLeaveWorkersWithTheSameBits) {
  train::TrainerOptions options = Options(1);
  options.server_options.from_workers.method = ps::Compression::kInt8;
  options.server_options.to_workers.method = ps::Compression::kFp16;
  GanTrainer trainer(options, TinyOptions());
  ASSERT_EQ(trainer.Train({.epochs = 3}).status(), absl::OkStatus());
  const std::vector<NamedTensors> weights = WeightsOf(trainer);
  EXPECT_TRUE(Equal(weights[0], weights[1]));
  // The first time in full; then about 1 and 2 of 4 bytes, buffers aside.
  const auto stats = trainer.GetSyncStats();
  ASSERT_EQ(stats.status(), absl::OkStatus());
  EXPECT_GT(stats->bytes_saved_pull, 0.45 * stats->bytes_pulled);
  EXPECT_GT(stats->bytes_saved_push, 0.3 * stats->bytes_pushed);
}

TEST_F(GanTrainerTest, WorkersSayHowFarTheyAre) {
  GanTrainer trainer(Options(1), TinyOptions());
  ASSERT_EQ(trainer.Train({.epochs = 2}).status(), absl::OkStatus());
  const auto progress = trainer.WorkerProgress();
  ASSERT_EQ(progress.status(), absl::OkStatus());
  ASSERT_EQ(progress->size(), 2u);
  for (const train::Progress& worker : *progress) {
    EXPECT_EQ(worker.epoch, 1);
    EXPECT_TRUE(worker.done);
    EXPECT_EQ(worker.samples_done, 32);
    EXPECT_TRUE(worker.metrics.contains("g_loss"));
  }
}

TEST_F(GanTrainerTest, TrainingRunSavesWorkersAverageAndPicture) {
  const std::string folder = ::testing::TempDir() + "/distributed";
  TrainingRunOptions options = {.worker = TinyOptions(),
                                .epochs = 2,
                                .save_dir = folder,
                                .distributed = true,
                                .trainer = Options(1)};
  // A bar that draws asks the workers how far they are.
  std::FILE* const bar_file = std::tmpfile();
  std::FILE* const text_file = std::tmpfile();
  ProgressBar bar({.out = bar_file, .text = text_file, .draw = true});
  ASSERT_EQ(RunTraining(options, &bar), absl::OkStatus());
  std::fclose(bar_file);
  std::fclose(text_file);

  const auto generator = [&](const std::string& path) {
    return *LoadGanModel(folder + path, GanNetwork::kGenerator);
  };
  const GanModel average = generator("/generator.pt");
  EXPECT_EQ(average.latent_dim, 8);
  EXPECT_EQ(average.shape, (ImageShape{3, 32, 32}));
  EXPECT_TRUE(
      Equal(average.weights, generator("/worker_0/generator.pt").weights));
  EXPECT_TRUE(
      Equal(average.weights, generator("/worker_1/generator.pt").weights));
  EXPECT_TRUE(
      LoadGanModel(folder + "/discriminator.pt", GanNetwork::kDiscriminator)
          .ok());
  EXPECT_TRUE(std::filesystem::exists(folder + "/samples.png"));
}

TEST_F(GanTrainerTest, AConditionalDcganIsSavedAsItsAverage) {
  const std::string folder = ::testing::TempDir() + "/dcgan";
  const std::string runs = ::testing::TempDir() + "/dcgan_runs";
  std::filesystem::remove_all(runs);
  TrainingRunOptions options = {.worker = TinyOptions(),
                                .epochs = 2,
                                .save_dir = folder,
                                .sample_every = 1,
                                .distributed = true,
                                .trainer = Options(1)};
  options.worker.architecture = GanArchitecture::kDcgan;
  options.worker.conditional = true;
  options.worker.loss = GanLoss::kHinge;
  options.worker.ema_decay = 0.5;
  options.trainer.storage_path = runs;
  options.trainer.name = "run";
  TextBar bar;
  ASSERT_EQ(RunTraining(options, bar.get()), absl::OkStatus());

  const GanModel average =
      *LoadGanModel(folder + "/generator.pt", GanNetwork::kGenerator);
  EXPECT_EQ(average.architecture, GanArchitecture::kDcgan);
  EXPECT_EQ(average.classes, 10);
  ASSERT_EQ(average.class_names.size(), 10u);
  EXPECT_EQ(average.class_names[9], "class 9");
  for (const char* worker : {"/worker_0", "/worker_1"}) {
    EXPECT_TRUE(Equal(
        average.weights,
        LoadGanModel(folder + worker + "/generator.pt", GanNetwork::kGenerator)
            ->weights));
  }
  EXPECT_EQ(
      LoadGanModel(folder + "/discriminator.pt", GanNetwork::kDiscriminator)
          ->classes,
      10);
  for (const char* picture : {"/epoch-0001.png", "/epoch-0002.png"}) {
    EXPECT_TRUE(std::filesystem::exists(runs + "/run/samples" + picture));
  }
  EXPECT_FALSE(std::filesystem::exists(folder + "/samples"));

  // The average is what is synchronised under that name.
  GanTrainer trainer(Options(1), options.worker);
  ASSERT_EQ(trainer.Train({.epochs = 2}).status(), absl::OkStatus());
  const NamedTensors weights = *trainer.PullWeights();
  EXPECT_TRUE(Equal(SelectTrainedGenerator(weights), average.weights));
  EXPECT_FALSE(
      Equal(SelectNetwork(GanNetwork::kGenerator, weights), average.weights));
}

TEST_F(GanTrainerTest, MomentsAreAveragedWhereThatIsAskedFor) {
  GanWorkerOptions options = TinyOptions();
  options.sync_moments = SyncMoments::kAverage;
  GanTrainer trainer(Options(1), options);
  ASSERT_EQ(trainer.Train({.epochs = 2}).status(), absl::OkStatus());
  const std::vector<NamedTensors> weights = WeightsOf(trainer);
  EXPECT_TRUE(Equal(weights[0], weights[1]));
  EXPECT_TRUE(Equal(weights[0], *trainer.PullWeights()));
  // Two epochs of two batches of a shard of 32 images.
  int counters = 0;
  for (const auto& [name, tensor] : weights[0]) {
    if (!name.ends_with("_adam.step")) continue;
    EXPECT_EQ(tensor.item<int64_t>(), 4) << name;
    ++counters;
  }
  EXPECT_EQ(counters, 2);
  trainer.Shutdown();

  // What workers do with the same mean afterwards differs.
  std::vector<NamedTensors> ends;
  for (const SyncMoments moments :
       {SyncMoments::kKeep, SyncMoments::kAverage, SyncMoments::kReset}) {
    options.sync_moments = moments;
    GanTrainer each(Options(1), options);
    ASSERT_EQ(each.Train({.epochs = 2}).status(), absl::OkStatus());
    ends.push_back(SelectNetwork(GanNetwork::kGenerator, *each.PullWeights()));
  }
  EXPECT_FALSE(Equal(ends[0], ends[1]));
  EXPECT_FALSE(Equal(ends[0], ends[2]));
  EXPECT_FALSE(Equal(ends[1], ends[2]));
}

TEST_F(GanTrainerTest, AServerOptimizerLeavesTheAverageAtTheMean) {
  GanWorkerOptions options = TinyOptions();
  options.ema_decay = 0.5;
  train::TrainerOptions with_optimizer = Options(1);
  with_optimizer.sync_strategy = "fedadam";
  GanTrainer trainer(with_optimizer, options);
  ASSERT_EQ(trainer.Train({.epochs = 1}).status(), absl::OkStatus());
  const NamedTensors synced = *trainer.PullWeights();

  // The same workers in this process, with as many threads as theirs.
  at::set_num_threads(1);
  std::vector<NamedTensors> own;
  for (const int id : {0, 1}) {
    options.worker_id = id;
    GanWorker worker(options);
    ASSERT_EQ(worker.LoadDataShard(id, 2), absl::OkStatus());
    ASSERT_EQ(worker.TrainEpoch(0).status(), absl::OkStatus());
    own.push_back(Copy(*worker.GetWeights()));
  }
  ASSERT_EQ(synced.size(), own[0].size());
  bool stepped = false;
  int averages = 0;
  for (size_t i = 0; i < synced.size(); ++i) {
    const auto& [name, tensor] = synced[i];
    ASSERT_EQ(name, own[0][i].first);
    if (tensor.scalar_type() != at::kFloat) continue;
    const at::Tensor mean = (own[0][i].second + own[1][i].second) / 2;
    const bool is_mean = tensor.allclose(mean, 1e-5, 1e-7);
    if (name.starts_with("generator_ema.")) {
      EXPECT_TRUE(is_mean) << name;
      ++averages;
    } else if (name.ends_with(".weight")) {
      stepped |= !is_mean;
    }
  }
  EXPECT_GT(averages, 0);
  // What is not a buffer was moved by the optimizer.
  EXPECT_TRUE(stepped);
}

TEST_F(GanTrainerTest, ErrorsOfWorkersNameThem) {
  GanWorkerOptions worker = TinyOptions();
  worker.dataset = "cifar10";
  worker.data_dir = "/no/such/folder";
  GanTrainer trainer(Options(1), worker);
  const absl::Status status = trainer.Train({.epochs = 1}).status();
  // Whichever is first.
  EXPECT_THAT(std::string(status.message()),
              ContainsRegex("worker [01]: GanWorker"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace miniray::ml

TEST_CLUSTER_MAIN()
