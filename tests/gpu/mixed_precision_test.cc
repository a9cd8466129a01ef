// Autocast, the loss scaler and TrainLoop on a GPU.

#include "train/mixed_precision.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/gpu.h"
#include "tests/runtime/base/status_matchers.h"
#include "torch/torch.h"
#include "train/loss_scaler.h"
#include "train/train_loop.h"

namespace miniray::train {
namespace {

class GpuPrecisionTest : public ::testing::Test {
 protected:
  const c10::Device gpu_ = RequireGpu();
};

TEST_F(GpuPrecisionTest, AutoIsTheGpu) {
  ASSERT_THAT(ChooseDevice(), IsOk());
  EXPECT_EQ(*ChooseDevice(), gpu_);
  EXPECT_EQ(*ChooseDevice("cuda:0"), gpu_);
  EXPECT_THAT(ChooseDevice("cuda:99"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("this process sees")));
}

TEST_F(GpuPrecisionTest, MatrixProductsAreInSixteenBits) {
  const auto product = [&](const torch::Device& device) {
    const torch::Tensor x = torch::ones({4, 4}, device);
    return torch::matmul(x, x).scalar_type();
  };
  EXPECT_EQ(product(gpu_), torch::kFloat32);
  {
    const Autocast half(Precision::kFloat16, gpu_);
    EXPECT_EQ(product(gpu_), torch::kFloat16);
    // The CPU's is another.
    EXPECT_EQ(product(torch::kCPU), torch::kFloat32);
    {
      const Autocast other(Precision::kBfloat16, gpu_);
      EXPECT_EQ(product(gpu_), torch::kBFloat16);
      const Autocast off(Precision::kFloat32, gpu_);
      EXPECT_EQ(product(gpu_), torch::kFloat32);
    }
    EXPECT_EQ(product(gpu_), torch::kFloat16);
  }
  EXPECT_EQ(product(gpu_), torch::kFloat32);
}

TEST_F(GpuPrecisionTest, CopiesOfWeightsAreNotStale) {
  torch::nn::Linear linear(8, 1);
  linear->to(gpu_);
  const torch::Tensor x = torch::ones({1, 8}, gpu_);
  const auto forward = [&] {
    const Autocast half(Precision::kFloat16, gpu_);
    return linear(x).item<float>();
  };
  forward();
  {
    const torch::NoGradGuard no_grad;
    linear->weight.fill_(1);
    linear->bias.fill_(0);
  }
  EXPECT_EQ(forward(), 8);
}

TEST_F(GpuPrecisionTest, TheScalerFindsOverflow) {
  const LossScaler scaler({.initial_scale = 8});
  const torch::Tensor good = torch::full({3}, 16.0f, gpu_);
  const torch::Tensor bad = good.clone();
  bad[1] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(scaler.Unscale({good, bad}));
  EXPECT_EQ(good[0].item<float>(), 16);
  EXPECT_TRUE(scaler.Unscale({good}));
  EXPECT_EQ(good[0].item<float>(), 2);
}

// Learns y = 2 a - b; returns the last epoch's loss.
double LastLoss(const c10::Device& device, TrainLoopOptions options) {
  torch::manual_seed(3);
  const torch::Tensor x = torch::randn({512, 2}).to(device);
  const torch::Tensor y = x.matmul(torch::tensor({2.0f, -1.0f}).to(device));
  torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 1));
  model->to(device);
  torch::optim::Adam adam(model->parameters(), 0.01);
  auto loop = TrainLoop::Create(adam, std::move(options));
  EXPECT_THAT(loop, IsOk());
  double loss = -1;
  for (int epoch = 0; epoch < 30; ++epoch) {
    (*loop)->BeginEpoch(epoch);
    for (int64_t i = 0; i < 512; i += 64) {
      EXPECT_THAT((*loop)->Step(64,
                                [&] {
                                  return torch::mse_loss(
                                      model->forward(x.narrow(0, i, 64))
                                          .squeeze(1)
                                          .to(torch::kFloat32),
                                      y.narrow(0, i, 64));
                                }),
                  IsOk());
    }
    const absl::StatusOr<Metrics> metrics = (*loop)->EndEpoch();
    EXPECT_THAT(metrics, IsOk());
    loss = metrics->at("loss");
    EXPECT_THAT((*loop)->SaveState(), IsOk());
  }
  return loss;
}

TEST_F(GpuPrecisionTest, TrainLoopComesToTheSameInEachPrecision) {
  const TrainLoopOptions options = {.accumulate = 2, .clip_norm = 10};
  const double cpu = LastLoss(torch::kCPU, options);
  EXPECT_LT(cpu, 0.01);
  EXPECT_NEAR(LastLoss(gpu_, options), cpu, 1e-4);
  TrainLoopOptions half = options;
  half.precision = Precision::kFloat16;
  EXPECT_LT(LastLoss(gpu_, half), 0.02);
  half.precision = Precision::kBfloat16;
  EXPECT_LT(LastLoss(gpu_, half), 0.02);
}

TEST_F(GpuPrecisionTest, AScaleThatIsTooLargeShrinks) {
  torch::nn::Linear linear(4, 1);
  linear->to(gpu_);
  torch::optim::SGD sgd(linear->parameters(), 0.01);
  auto loop = TrainLoop::Create(
      sgd, {.precision = Precision::kFloat16,
            .loss_scaler = LossScalerOptions{.initial_scale = 1e30},
            .on_non_finite = OnNonFinite::kSkip});
  ASSERT_THAT(loop, IsOk());
  (*loop)->BeginEpoch(0);
  const torch::Tensor x = torch::ones({4, 4}, gpu_);
  for (int i = 0; i < 120; ++i) {
    ASSERT_THAT((*loop)->Step(4, [&] { return linear(x).square().mean(); }),
                IsOk());
  }
  const absl::StatusOr<Metrics> metrics = (*loop)->EndEpoch();
  ASSERT_THAT(metrics, IsOk());
  EXPECT_GT(metrics->at("skipped_steps"), 10);
  EXPECT_LT((*loop)->loss_scale(), 1e30);
  EXPECT_GT((*loop)->steps(), 0);
}

}  // namespace
}  // namespace miniray::train
