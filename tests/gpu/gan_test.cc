// The GAN on a GPU: by itself, and as workers that share one.

#include "ml/gan/gan.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/gan_trainer.h"
#include "ml/gan/gan_worker.h"
#include "tests/gpu/gpu.h"
#include "tests/ml/gan/gan_testutil.h"
#include "tests/runtime/base/status_matchers.h"
#include "torch/torch.h"

namespace miniray::ml {
namespace {

using train::Precision;

// The greatest difference between the weights of two GANs.
double Distance(const NamedTensors& a, const NamedTensors& b) {
  double distance = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const at::Tensor difference =
        (a[i].second.to(torch::kDouble) - b[i].second.to(torch::kDouble)).abs();
    distance = std::max(distance, difference.max().item<double>());
  }
  return distance;
}

class GpuGanTest : public ::testing::Test {
 protected:
  // Trains for some steps.
  NamedTensors Train(const std::string& device, Precision precision,
                     int steps) {
    GanOptions options = SmallGanOptions();
    options.device = device;
    options.loop.precision = precision;
    auto gan = Gan::Create(options);
    EXPECT_THAT(gan, IsOk());
    const at::Tensor images = SmallImages(32, 1);
    (*gan)->BeginEpoch(0);
    for (int i = 0; i < steps; ++i) {
      EXPECT_THAT((*gan)->TrainStep(images), IsOk());
    }
    const absl::StatusOr<train::Metrics> metrics = (*gan)->EndEpoch();
    EXPECT_THAT(metrics, IsOk());
    if (steps > 0) {
      EXPECT_TRUE(std::isfinite(metrics->at("g_loss")));
    }
    return (*gan)->Weights();
  }

  static GanWorkerOptions TinyWorker() {
    return {.dataset = "synthetic",
            .limit = 64,
            .batch_size = 16,
            .latent_dim = 8,
            .device = "cuda",
            .seed = 5};
  }

  const c10::Device gpu_ = RequireGpu();
};

TEST_F(GpuGanTest, StepsAreThoseOfTheCpu) {
  const NamedTensors first = Train("cuda", Precision::kFloat32, 0);
  EXPECT_EQ(Distance(first, Train("cpu", Precision::kFloat32, 0)), 0);
  for (const auto& [name, tensor] : first) EXPECT_TRUE(tensor.is_cpu()) << name;
  // Adam's steps are of about lr, 2e-4, whatever the gradient.
  EXPECT_LT(Distance(Train("cuda", Precision::kFloat32, 1),
                     Train("cpu", Precision::kFloat32, 1)),
            5e-4);
}

TEST_F(GpuGanTest, TrainsInEachPrecision) {
  const NamedTensors exact = Train("cuda", Precision::kFloat32, 10);
  for (const Precision precision :
       {Precision::kFloat16, Precision::kBfloat16}) {
    const double distance = Distance(exact, Train("cuda", precision, 10));
    EXPECT_GT(distance, 0);
    EXPECT_LT(distance, 0.05);
  }
}

TEST_F(GpuGanTest, GoesOnFromACheckpoint) {
  for (const Precision precision :
       {Precision::kFloat32, Precision::kFloat16, Precision::kBfloat16}) {
    GanWorkerOptions options = TinyWorker();
    options.loop.precision = precision;
    GanWorker worker(options);
    ASSERT_THAT(worker.LoadDataShard(0, 1), IsOk());
    for (int epoch = 0; epoch < 2; ++epoch) {
      ASSERT_THAT(worker.TrainEpoch(epoch), IsOk());
    }
    const absl::StatusOr<train::CheckpointFiles> files =
        worker.SaveCheckpoint();
    ASSERT_THAT(files, IsOk());
    const NamedTensors saved = Copy(*worker.GetWeights());
    ASSERT_THAT(worker.TrainEpoch(2), IsOk());

    GanWorker resumed(options);
    ASSERT_THAT(resumed.LoadDataShard(0, 1), IsOk());
    ASSERT_THAT(resumed.TrainEpoch(7), IsOk());
    ASSERT_THAT(resumed.LoadCheckpoint(*files), IsOk());
    EXPECT_TRUE(Equal(*resumed.GetWeights(), saved));
    ASSERT_THAT(resumed.TrainEpoch(2), IsOk());
    EXPECT_TRUE(Equal(*resumed.GetWeights(), *worker.GetWeights()))
        << Distance(*resumed.GetWeights(), *worker.GetWeights());
  }
}

TEST_F(GpuGanTest, AConditionalDcganGoesOnFromACheckpoint) {
  GanWorkerOptions options = TinyWorker();
  options.architecture = GanArchitecture::kDcgan;
  options.conditional = true;
  options.ema_decay = 0.9;
  GanWorker worker(options);
  ASSERT_THAT(worker.LoadDataShard(0, 1), IsOk());
  for (int epoch = 0; epoch < 2; ++epoch) {
    ASSERT_THAT(worker.TrainEpoch(epoch), IsOk());
  }
  const absl::StatusOr<train::CheckpointFiles> files = worker.SaveCheckpoint();
  ASSERT_THAT(files, IsOk());
  const NamedTensors saved = Copy(*worker.GetWeights());
  ASSERT_THAT(worker.TrainEpoch(2), IsOk());

  GanWorker resumed(options);
  ASSERT_THAT(resumed.LoadDataShard(0, 1), IsOk());
  ASSERT_THAT(resumed.TrainEpoch(7), IsOk());
  ASSERT_THAT(resumed.LoadCheckpoint(*files), IsOk());
  EXPECT_TRUE(Equal(*resumed.GetWeights(), saved));
  ASSERT_THAT(resumed.TrainEpoch(2), IsOk());
  // Not bit by bit: cuDNN may add up a convolution's gradients in any order,
  // and Adam makes steps of about lr of what is next to nothing.
  EXPECT_LT(Distance(*resumed.GetWeights(), *worker.GetWeights()), 0.01);
}

// What was trained on a GPU goes on without one, and the other way round.
TEST_F(GpuGanTest, CheckpointsFitOtherDevices) {
  for (const bool from_gpu : {false, true}) {
    GanWorkerOptions options = TinyWorker();
    options.device = from_gpu ? "cuda" : "cpu";
    GanWorker worker(options);
    ASSERT_THAT(worker.LoadDataShard(0, 1), IsOk());
    ASSERT_THAT(worker.TrainEpoch(0), IsOk());
    const absl::StatusOr<train::CheckpointFiles> files =
        worker.SaveCheckpoint();
    ASSERT_THAT(files, IsOk());
    options.device = from_gpu ? "cpu" : "cuda";
    GanWorker other(options);
    ASSERT_THAT(other.LoadDataShard(0, 1), IsOk());
    ASSERT_THAT(other.LoadCheckpoint(*files), IsOk());
    EXPECT_TRUE(Equal(*other.GetWeights(), *worker.GetWeights()));
    ASSERT_THAT(other.TrainEpoch(1), IsOk());
    ASSERT_THAT(worker.TrainEpoch(1), IsOk());
    EXPECT_LT(Distance(*other.GetWeights(), *worker.GetWeights()), 0.01);
  }
}

TEST_F(GpuGanTest, TwoWorkersOnOneGpuAreAveraged) {
  TestCluster nodes(OneGpu());
  for (const Precision precision :
       {Precision::kFloat32, Precision::kFloat16, Precision::kBfloat16}) {
    train::TrainerOptions options = {
        .num_workers = 2, .cluster = nodes.Connect(), .sync_interval = 1};
    options.worker_resources.gpu = 0.5;
    GanWorkerOptions worker = TinyWorker();
    worker.loop.precision = precision;
    GanTrainer trainer(options, worker);
    const absl::StatusOr<train::Result> result = trainer.Train({.epochs = 2});
    ASSERT_THAT(result, IsOk());
    EXPECT_TRUE(result->history[1].synced);
    std::vector<NamedTensors> weights;
    for (const auto& each : trainer.workers()) {
      weights.push_back(*each.Call<&GanWorker::GetWeights>().Get());
    }
    EXPECT_TRUE(Equal(weights[0], weights[1]));
    EXPECT_TRUE(Equal(weights[0], *trainer.PullWeights()));
  }
}

}  // namespace
}  // namespace miniray::ml

TEST_CLUSTER_MAIN()
