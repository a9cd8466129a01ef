#include "ml/gan/gan_worker.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

TEST(GanWorkerTest, ReportsWithinTheEpoch) {
  GanWorkerOptions options = TinyOptions();
  options.worker_id = 3;
  GanWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  std::vector<BatchProgress> reports;
  worker.set_report(
      [&](const BatchProgress& progress) { reports.push_back(progress); });
  ASSERT_EQ(worker.TrainEpoch(7).status(), absl::OkStatus());
  ASSERT_FALSE(reports.empty());  // The first batch always reports.
  EXPECT_EQ(reports[0].worker_id, 3);
  EXPECT_EQ(reports[0].epoch, 7);
  EXPECT_EQ(reports[0].batches_done, 1);
  EXPECT_EQ(reports[0].batches, 3);
  EXPECT_EQ(reports[0].images, 16);
  EXPECT_GT(reports[0].seconds, 0);
  EXPECT_GT(reports[0].g_loss, 0);
}

TEST(GanWorkerTest, GoesOnFromACheckpointBitByBit) {
  GanWorkerOptions options = TinyOptions();
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

  train::CheckpointFiles incomplete = *files;
  incomplete.erase("training.pt");
  const absl::Status lacks = resumed.LoadCheckpoint(incomplete);
  EXPECT_EQ(lacks.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(lacks.message(), HasSubstr("training.pt"));
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
  EXPECT_THAT(std::string(status.message()), HasSubstr("lr below 1e+30"));
}

TEST(ProgressBoardTest, KeepsTheLastReportOfEachWorker) {
  ProgressBoard board;
  EXPECT_TRUE(board.Latest().empty());
  board.Report({.worker_id = 1, .epoch = 0, .batches_done = 3});
  board.Report({.worker_id = 0, .epoch = 0, .batches_done = 1});
  board.Report({.worker_id = 1, .epoch = 1, .batches_done = 2});
  const std::vector<BatchProgress> latest = board.Latest();
  ASSERT_EQ(latest.size(), 2u);
  EXPECT_EQ(latest[0].worker_id, 0);
  EXPECT_EQ(latest[1].epoch, 1);
  EXPECT_EQ(latest[1].batches_done, 2);
}

TEST(ProgressBoardTest, AddsUpTheWorkersOfAnEpoch) {
  const std::vector<BatchProgress> reports = {
      {.worker_id = 0,
       .epoch = 2,
       .batches_done = 5,
       .batches = 10,
       .images = 50,
       .seconds = 5,
       .g_loss = 1,
       .d_loss = 3},
      {.worker_id = 1,
       .epoch = 2,
       .batches_done = 10,
       .batches = 10,
       .images = 100,
       .seconds = 5,
       .g_loss = 2,
       .d_loss = 4},
      {.worker_id = 2, .epoch = 1, .batches_done = 10, .batches = 10}};
  const TotalProgress total = AddUp(reports, 2, 3);
  EXPECT_DOUBLE_EQ(total.fraction, 0.5);
  EXPECT_DOUBLE_EQ(total.images_per_sec, 30);
  EXPECT_DOUBLE_EQ(total.g_loss, 1.5);
  EXPECT_DOUBLE_EQ(total.d_loss, 3.5);
  EXPECT_EQ(AddUp(reports, 3, 3).fraction, 0);
  EXPECT_EQ(AddUp({}, 0, 0).fraction, 0);
}

}  // namespace
}  // namespace miniray::ml
