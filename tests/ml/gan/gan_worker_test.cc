#include "ml/gan/gan_worker.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/total_progress.h"
#include "ml/image/png.h"
#include "tests/ml/data/data_testutil.h"
#include "tests/ml/gan/gan_testutil.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;

GanWorkerOptions TinyOptions() {
  return {.dataset = "synthetic",
          .limit = 48,
          .batch_size = 16,
          .latent_dim = 8,
          .seed = 5};
}

NamedTensors WeightsAfter(const GanWorkerOptions& options, int epochs,
                          int shard = 0, int num_shards = 1) {
  GanWorker worker(options);
  EXPECT_EQ(worker.LoadDataShard(shard, num_shards), absl::OkStatus());
  for (int epoch = 0; epoch < epochs; ++epoch) {
    EXPECT_EQ(worker.TrainEpoch(epoch).status(), absl::OkStatus());
  }
  return Copy(*worker.GetWeights());
}

TEST(GanWorkerTest, ReportsTheEpoch) {
  GanWorker worker(TinyOptions());
  ASSERT_EQ(worker.LoadDataShard(1, 2), absl::OkStatus());
  const GanShard shard = *worker.DescribeShard();
  EXPECT_EQ(shard.images, 24);
  EXPECT_EQ(shard.shape(), (ImageShape{3, 32, 32}));

  const absl::StatusOr<train::Metrics> metrics = worker.TrainEpoch(0);
  ASSERT_EQ(metrics.status(), absl::OkStatus());
  // One batch of 16; the eight images that are left make no batch.
  EXPECT_EQ(metrics->at("images"), 16);
  EXPECT_EQ(metrics->at("samples"), 16);
  EXPECT_GT(metrics->at("seconds"), 0);
  EXPECT_NEAR(metrics->at("images_per_sec"), 16 / metrics->at("seconds"), 1e-6);
  EXPECT_NEAR(metrics->at("d_loss"), std::log(2.0), 0.1);
  EXPECT_NEAR(metrics->at("g_loss"), std::log(2.0), 0.1);
}

TEST(GanWorkerTest, TellsTheParameterServerOfSamplesAndBuffers) {
  GanWorker worker(TinyOptions());
  EXPECT_EQ(worker.NumSamples().status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(worker.BufferNames().status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(worker.LoadDataShard(1, 2), absl::OkStatus());
  EXPECT_EQ(*worker.NumSamples(), 24);
  // BatchNorm's, and nothing else: what their names end in.
  const std::vector<std::string> buffers = *worker.BufferNames();
  std::vector<std::string> expected;
  const NamedTensors weights = *worker.GetWeights();
  for (const auto& [name, tensor] : weights) {
    if (name.find("running_") != std::string::npos ||
        name.find("num_batches") != std::string::npos) {
      expected.push_back(name);
    }
  }
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(buffers, expected);
}

TEST(GanWorkerTest, ABatchLargerThanTheShardIsTheShard) {
  GanWorkerOptions options = TinyOptions();
  options.batch_size = 1000;
  GanWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 4), absl::OkStatus());
  EXPECT_EQ(worker.TrainEpoch(0)->at("images"), 12);
}

TEST(GanWorkerTest, SameSeedAndRankGiveTheSameRun) {
  EXPECT_TRUE(
      Equal(WeightsAfter(TinyOptions(), 2), WeightsAfter(TinyOptions(), 2)));
  GanWorkerOptions other = TinyOptions();
  other.seed = 6;
  EXPECT_FALSE(Equal(WeightsAfter(TinyOptions(), 0), WeightsAfter(other, 0)));
}

TEST(GanWorkerTest, RanksStartAlikeAndGoDifferentWays) {
  GanWorkerOptions second = TinyOptions();
  second.worker_id = 1;
  EXPECT_TRUE(Equal(WeightsAfter(TinyOptions(), 0), WeightsAfter(second, 0)));
  // Even on the same shard: noise and order differ.
  EXPECT_FALSE(Equal(WeightsAfter(TinyOptions(), 1), WeightsAfter(second, 1)));
}

TEST(GanWorkerTest, WeightsMoveBetweenWorkers) {
  GanWorker a(TinyOptions());
  GanWorkerOptions options = TinyOptions();
  options.seed = 9;
  GanWorker b(options);
  ASSERT_EQ(a.LoadDataShard(0, 2), absl::OkStatus());
  ASSERT_EQ(b.LoadDataShard(1, 2), absl::OkStatus());
  ASSERT_EQ(b.SetWeights(Copy(*a.GetWeights())), absl::OkStatus());
  EXPECT_TRUE(Equal(*a.GetWeights(), *b.GetWeights()));
  EXPECT_FALSE(b.SetWeights({}).ok());
}

TEST(GanWorkerTest, SaysHowFarTheEpochIs) {
  GanWorker worker(TinyOptions());
  EXPECT_EQ(worker.GetProgress().epoch, -1);
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  EXPECT_EQ(worker.GetProgress().epoch, -1);
  // From another thread, while it trains.
  std::atomic<bool> done = false;
  int64_t most = 0;
  std::thread asking([&] {
    while (!done) {
      const train::Progress progress = worker.GetProgress();
      if (progress.epoch == 7) most = std::max(most, progress.samples_done);
    }
  });
  const absl::StatusOr<train::Metrics> metrics = worker.TrainEpoch(7);
  done = true;
  asking.join();
  ASSERT_EQ(metrics.status(), absl::OkStatus());
  EXPECT_LE(most, 48);
  const train::Progress progress = worker.GetProgress();
  EXPECT_EQ(progress.epoch, 7);
  EXPECT_TRUE(progress.done);
  EXPECT_EQ(progress.samples_done, 48);
  EXPECT_EQ(progress.samples, 48);
  EXPECT_EQ(progress.metrics.at("g_loss"), metrics->at("g_loss"));
  EXPECT_EQ(progress.metrics.at("d_loss"), metrics->at("d_loss"));
}

TEST(GanWorkerTest, GoesOnFromACheckpointBitByBit) {
  GanWorkerOptions options = TinyOptions();
  // By steps: what it has taken is part of it.
  options.loop.schedule = {.kind = train::LrSchedule::Kind::kCosine,
                           .total_steps = 20};
  GanWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  for (int epoch = 0; epoch < 2; ++epoch) {
    ASSERT_EQ(worker.TrainEpoch(epoch).status(), absl::OkStatus());
  }
  const absl::StatusOr<train::CheckpointFiles> files = worker.SaveCheckpoint();
  ASSERT_EQ(files.status(), absl::OkStatus());
  const NamedTensors saved = Copy(*worker.GetWeights());
  for (int epoch = 2; epoch < 4; ++epoch) {
    ASSERT_EQ(worker.TrainEpoch(epoch).status(), absl::OkStatus());
  }

  GanWorker resumed(options);
  ASSERT_EQ(resumed.LoadDataShard(0, 1), absl::OkStatus());
  // What the checkpoint must bring back, and not only for the first time.
  ASSERT_EQ(resumed.TrainEpoch(7).status(), absl::OkStatus());
  ASSERT_EQ(resumed.LoadCheckpoint(*files), absl::OkStatus());
  EXPECT_TRUE(Equal(*resumed.GetWeights(), saved));
  for (int epoch = 2; epoch < 4; ++epoch) {
    ASSERT_EQ(resumed.TrainEpoch(epoch).status(), absl::OkStatus());
  }
  EXPECT_TRUE(Equal(*resumed.GetWeights(), *worker.GetWeights()));

  // Without the optimizers and the random numbers it would go another way.
  GanWorker weights_only(options);
  ASSERT_EQ(weights_only.LoadDataShard(0, 1), absl::OkStatus());
  ASSERT_EQ(weights_only.SetWeights(saved), absl::OkStatus());
  for (int epoch = 2; epoch < 4; ++epoch) {
    ASSERT_EQ(weights_only.TrainEpoch(epoch).status(), absl::OkStatus());
  }
  EXPECT_FALSE(Equal(*weights_only.GetWeights(), *worker.GetWeights()));

  for (const char* file : {"training.pt", "generator.loop"}) {
    train::CheckpointFiles incomplete = *files;
    ASSERT_EQ(incomplete.erase(file), 1u);
    const absl::Status lacks = resumed.LoadCheckpoint(incomplete);
    EXPECT_EQ(lacks.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(lacks.message(), HasSubstr(file));
  }
}

// Everything at once: what is new must go together.
GanWorkerOptions FullOptions() {
  GanWorkerOptions options = TinyOptions();
  options.architecture = GanArchitecture::kDcgan;
  options.conditional = true;
  options.loss = GanLoss::kHinge;
  options.ema_decay = 0.9;
  return options;
}

TEST(GanWorkerTest, TrainsAConditionalDcganWithAnAverage) {
  GanWorker worker(FullOptions());
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  const std::vector<std::string> names = worker.DescribeShard()->class_names;
  ASSERT_EQ(names.size(), 10u);
  EXPECT_EQ(names[3], "class 3");
  ASSERT_EQ(worker.TrainEpoch(0).status(), absl::OkStatus());
  const absl::StatusOr<train::CheckpointFiles> files = worker.SaveCheckpoint();
  ASSERT_EQ(files.status(), absl::OkStatus());
  EXPECT_TRUE(files->contains("generator_ema.pt"));
  ASSERT_EQ(worker.TrainEpoch(1).status(), absl::OkStatus());

  GanWorker resumed(FullOptions());
  ASSERT_EQ(resumed.LoadDataShard(0, 1), absl::OkStatus());
  ASSERT_EQ(resumed.LoadCheckpoint(*files), absl::OkStatus());
  ASSERT_EQ(resumed.TrainEpoch(1).status(), absl::OkStatus());
  EXPECT_TRUE(Equal(*resumed.GetWeights(), *worker.GetWeights()));
}

TEST(GanWorkerTest, AllOfTheAverageIsABuffer) {
  GanWorker worker(FullOptions());
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  const std::vector<std::string> buffers = *worker.BufferNames();
  std::vector<std::string> expected;
  const NamedTensors weights = *worker.GetWeights();
  for (const auto& [name, tensor] : weights) {
    if (name.starts_with("generator_ema.") ||
        name.find("running_") != std::string::npos ||
        name.find("num_batches") != std::string::npos) {
      expected.push_back(name);
    }
  }
  EXPECT_EQ(buffers, expected);
}

TEST(GanWorkerTest, MomentsThatAreSynchronisedAreBuffers) {
  GanWorkerOptions options = FullOptions();
  options.sync_moments = SyncMoments::kAverage;
  GanWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  ASSERT_EQ(worker.TrainEpoch(0).status(), absl::OkStatus());
  const std::vector<std::string> buffers = *worker.BufferNames();
  std::vector<std::string> expected;
  int moments = 0;
  const NamedTensors weights = *worker.GetWeights();
  for (const auto& [name, tensor] : weights) {
    const bool is_moment = name.find("_adam.") != std::string::npos;
    moments += is_moment ? 1 : 0;
    if (is_moment || name.starts_with("generator_ema.") ||
        name.find("running_") != std::string::npos ||
        name.find("num_batches") != std::string::npos) {
      expected.push_back(name);
    }
  }
  EXPECT_GT(moments, 0);
  EXPECT_EQ(buffers, expected);
  EXPECT_EQ(worker.SetWeights(Copy(weights)), absl::OkStatus());
}

TEST(GanWorkerTest, SamplesAreOfTheAverageAndChangeNothing) {
  GanWorkerOptions options = FullOptions();
  options.ema_decay = 0.5;
  GanWorker worker(options);
  EXPECT_EQ(worker.SampleImages(1, 4).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  ASSERT_EQ(worker.TrainEpoch(0).status(), absl::OkStatus());
  const train::CheckpointFiles saved = *worker.SaveCheckpoint();
  const at::Tensor images = *worker.SampleImages(1, 4);
  EXPECT_TRUE(*worker.SaveCheckpoint() == saved);
  EXPECT_EQ(images.scalar_type(), at::kByte);
  EXPECT_EQ(images.sizes(), at::IntArrayRef({4, 3, 32, 32}));
  EXPECT_TRUE(images.equal(*worker.SampleImages(1, 4)));
  EXPECT_FALSE(images.equal(*worker.SampleImages(2, 4)));
  ASSERT_EQ(worker.TrainEpoch(1).status(), absl::OkStatus());
  EXPECT_TRUE(Equal(*worker.GetWeights(), WeightsAfter(options, 2)));

  // Another average, with the same generator, makes other images.
  NamedTensors weights = Copy(*worker.GetWeights());
  const at::Tensor before = *worker.SampleImages(1, 4);
  for (auto& [name, tensor] : weights) {
    if (name == "generator.layers.0.weight") tensor.zero_();
  }
  ASSERT_EQ(worker.SetWeights(weights), absl::OkStatus());
  EXPECT_TRUE(before.equal(*worker.SampleImages(1, 4)));
  for (auto& [name, tensor] : weights) {
    if (name == "generator_ema.layers.0.weight") tensor.zero_();
  }
  ASSERT_EQ(worker.SetWeights(weights), absl::OkStatus());
  EXPECT_FALSE(before.equal(*worker.SampleImages(1, 4)));

  for (const int64_t count : {int64_t{0}, GanWorker::kMaxSamples + 1}) {
    EXPECT_EQ(worker.SampleImages(1, count).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(GanWorkerTest, DealsTheImagesAsToldTo) {
  GanWorkerOptions options = TinyOptions();
  for (const char* sharding : {"contiguous", "strided", "shuffled"}) {
    options.sharding = sharding;
    GanWorker worker(options);
    ASSERT_EQ(worker.LoadDataShard(1, 3), absl::OkStatus()) << sharding;
    EXPECT_EQ(worker.DescribeShard()->images, 16) << sharding;
  }
  // Other images: other weights, from the same first ones.
  options.sharding = "contiguous";
  const NamedTensors contiguous = WeightsAfter(options, 1, 1, 3);
  options.sharding = "strided";
  EXPECT_FALSE(Equal(WeightsAfter(options, 1, 1, 3), contiguous));
  // One shard is everything, in its order.
  EXPECT_TRUE(Equal(WeightsAfter(options, 1), WeightsAfter(TinyOptions(), 1)));

  // Whole classes: the two shards have all images, and each some classes.
  options.sharding = "by_class";
  int64_t images = 0;
  for (const int shard : {0, 1}) {
    GanWorker worker(options);
    ASSERT_EQ(worker.LoadDataShard(shard, 2), absl::OkStatus());
    images += worker.DescribeShard()->images;
  }
  EXPECT_EQ(images, 48);

  options.sharding = "by_size";
  GanWorker wrong(options);
  const absl::Status status = wrong.LoadDataShard(0, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("sharding is 'by_size'"));
}

// Writes 24 pictures of two classes.
std::string MakePictures() {
  const std::string root = MakeTestFolder();
  for (int i = 0; i < 24; ++i) {
    const std::string folder =
        absl::StrCat(root, "/train/", i % 2 == 0 ? "even" : "odd");
    std::filesystem::create_directories(folder);
    EXPECT_EQ(WritePng(absl::StrCat(folder, "/", i, ".png"),
                       at::full({3, 8, 8}, 10 * i, at::kByte)),
              absl::OkStatus());
  }
  return root;
}

GanWorkerOptions PictureOptions(const std::string& data_dir) {
  return {.dataset = "image-folder",
          .data_dir = data_dir,
          .image_size = 8,
          .batch_size = 4,
          .latent_dim = 8,
          .conditional = true,
          .seed = 5};
}

TEST(GanWorkerTest, PicturesThatStayOnTheDiskTrainTheSame) {
  GanWorkerOptions options = PictureOptions(MakePictures());
  for (const char* sharding : {"contiguous", "shuffled", "by_class"}) {
    options.sharding = sharding;
    options.lazy = false;
    const NamedTensors in_memory = WeightsAfter(options, 2, 1, 2);
    options.lazy = true;
    EXPECT_TRUE(Equal(WeightsAfter(options, 2, 1, 2), in_memory)) << sharding;
    GanWorker worker(options);
    ASSERT_EQ(worker.LoadDataShard(1, 2), absl::OkStatus());
    const GanShard shard = *worker.DescribeShard();
    EXPECT_EQ(shard.images, 12);
    EXPECT_EQ(*worker.NumSamples(), 12);
    EXPECT_EQ(shard.shape(), (ImageShape{3, 8, 8}));
    EXPECT_EQ(shard.class_names, (std::vector<std::string>{"even", "odd"}));
  }
}

TEST(GanWorkerTest, APictureThatCannotBeReadIsAnErrorOfTheEpoch) {
  GanWorkerOptions options = PictureOptions(MakePictures());
  options.lazy = true;
  GanWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  ASSERT_EQ(worker.TrainEpoch(0).status(), absl::OkStatus());
  const std::string bad =
      WriteTestFile(options.data_dir + "/train/even", "4.png", "no PNG");
  // An epoch has all 24 pictures, in six batches.
  ExpectError(worker.TrainEpoch(1).status(), absl::StatusCode::kDataLoss,
              {bad});
}

TEST(GanWorkerTest, WantsDataFirst) {
  GanWorker worker(TinyOptions());
  EXPECT_EQ(worker.TrainEpoch(0).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(worker.GetWeights().status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(worker.SetWeights({}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(worker.DescribeShard().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(GanWorkerTest, RefusesWhatItCannotTrainOn) {
  const auto error = [](const GanWorkerOptions& options, int num_shards = 1) {
    GanWorker worker(options);
    return std::string(worker.LoadDataShard(0, num_shards).message());
  };
  GanWorkerOptions options = TinyOptions();
  options.batch_size = 1;
  EXPECT_THAT(error(options), HasSubstr("batch_size is 1"));
  EXPECT_THAT(error(TinyOptions(), 48), HasSubstr("at least 2"));
  options = TinyOptions();
  options.dataset = "imagenet";
  EXPECT_THAT(error(options), HasSubstr("unknown data set 'imagenet'"));
  options = TinyOptions();
  options.latent_dim = 0;
  EXPECT_THAT(error(options), HasSubstr("latent_dim is 0"));
  options = TinyOptions();
  options.dataset = "mnist";
  options.data_dir = "/no/such/folder";
  EXPECT_THAT(error(options), HasSubstr("/no/such/folder"));
  options = TinyOptions();
  options.lazy = true;
  EXPECT_THAT(error(options), HasSubstr("only an image-folder can stay on the "
                                        "disk (lazy), not 'synthetic'"));
}

TEST(GanWorkerTest, StopsWhenTheLossesAreNoLongerFinite) {
  GanWorkerOptions options = TinyOptions();
  options.lr = 1e30;
  GanWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  absl::Status status;
  for (int epoch = 0; epoch < 5 && status.ok(); ++epoch) {
    status = worker.TrainEpoch(epoch).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("learning rate below 1e+30"));
}

TEST(TotalProgressTest, AddsUpTheWorkersOfAnEpoch) {
  std::vector<train::Progress> workers(3);
  workers[0] = {.epoch = 2,
                .samples_done = 50,
                .samples = 100,
                .seconds = 5,
                .metrics = {{"g_loss", 1}, {"d_loss", 3}}};
  workers[1] = {.epoch = 2,
                .samples_done = 100,
                .samples = 100,
                .seconds = 5,
                .done = true,
                .metrics = {{"g_loss", 2}, {"d_loss", 4}}};
  workers[2] = {.epoch = 1, .samples_done = 100, .samples = 100};
  const TotalProgress total = AddUp(workers, 2);
  EXPECT_DOUBLE_EQ(total.fraction, 0.5);
  EXPECT_DOUBLE_EQ(total.images_per_sec, 30);
  EXPECT_DOUBLE_EQ(total.g_loss, 1.5);
  EXPECT_DOUBLE_EQ(total.d_loss, 3.5);
  EXPECT_EQ(AddUp(workers, 3).fraction, 0);
  EXPECT_EQ(AddUp({}, 0).fraction, 0);
  // Begun, and no step is done yet.
  workers[2] = {.epoch = 2, .samples = 100};
  EXPECT_DOUBLE_EQ(AddUp(workers, 2).g_loss, 1.5);
}

}  // namespace
}  // namespace miniray::ml
