#include "ml/gan/gan_loss.h"

#include <cmath>
#include <string>
#include <vector>

#include "ATen/ops/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;

// [N, 1], of which gradients are asked.
at::Tensor Logits(const std::vector<float>& values) {
  at::Tensor logits =
      at::tensor(values).view({static_cast<int64_t>(values.size()), 1});
  logits.set_requires_grad(true);
  return logits;
}

// Of the last loss, by logit.
std::vector<float> Gradient(const at::Tensor& loss, const at::Tensor& logits) {
  loss.backward();
  const at::Tensor gradient = logits.grad().contiguous();
  const float* const values = gradient.data_ptr<float>();
  return {values, values + gradient.numel()};
}

double Softplus(double x) { return std::log1p(std::exp(x)); }
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(GanLossTest, NamesAreThoseOfTheFlag) {
  EXPECT_EQ(*ParseGanLoss("non_saturating"), GanLoss::kNonSaturating);
  EXPECT_EQ(*ParseGanLoss("hinge"), GanLoss::kHinge);
  for (const char* name : {"", "Hinge", "wgan"}) {
    const absl::Status status = ParseGanLoss(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("non_saturating or hinge"));
  }
}

TEST(GanLossTest, HingeOfTheDiscriminatorByHand) {
  // Real 0.5 and 2: 1 - 0.5 is left of the first, nothing of the second. Fake
  // -0.25 and -3: 1 - 0.25, and nothing.
  const at::Tensor logits = Logits({0.5, 2, -0.25, -3});
  const at::Tensor loss = DiscriminatorLoss(GanLoss::kHinge, logits, 0);
  EXPECT_FLOAT_EQ(loss.item<float>(), 0.5 / 2 + 0.75 / 2);
  // Up for the real one that is short of 1, down for the fake one above -1.
  const std::vector<float> gradient = Gradient(loss, logits);
  EXPECT_FLOAT_EQ(gradient[0], -0.5);
  EXPECT_FLOAT_EQ(gradient[1], 0);
  EXPECT_FLOAT_EQ(gradient[2], 0.5);
  EXPECT_FLOAT_EQ(gradient[3], 0);
}

TEST(GanLossTest, HingeOfTheGeneratorByHand) {
  const at::Tensor logits = Logits({0.5, -1.5, 4, -5});
  const at::Tensor loss = GeneratorLoss(GanLoss::kHinge, logits);
  EXPECT_FLOAT_EQ(loss.item<float>(), 2.0 / 4);  // -(0.5 - 1.5 + 4 - 5) / 4
  for (const float gradient : Gradient(loss, logits)) {
    EXPECT_FLOAT_EQ(gradient, -0.25);
  }
}

TEST(GanLossTest, CrossEntropyOfTheDiscriminatorByHand) {
  const at::Tensor logits = Logits({0.5, 2, -0.25, -3});
  const at::Tensor loss = DiscriminatorLoss(GanLoss::kNonSaturating, logits, 0);
  EXPECT_NEAR(
      loss.item<float>(),
      (Softplus(-0.5) + Softplus(-2) + Softplus(-0.25) + Softplus(-3)) / 4,
      1e-6);
  // (sigmoid(x) - target) / 4.
  const std::vector<float> gradient = Gradient(loss, logits);
  EXPECT_NEAR(gradient[0], (Sigmoid(0.5) - 1) / 4, 1e-6);
  EXPECT_NEAR(gradient[1], (Sigmoid(2) - 1) / 4, 1e-6);
  EXPECT_NEAR(gradient[2], Sigmoid(-0.25) / 4, 1e-6);
  EXPECT_NEAR(gradient[3], Sigmoid(-3) / 4, 1e-6);
}

TEST(GanLossTest, SmoothingIsOfRealImagesOnly) {
  const at::Tensor logits = Logits({0.5, -0.25});
  EXPECT_NEAR(
      DiscriminatorLoss(GanLoss::kNonSaturating, logits, 0.1).item<float>(),
      (0.9 * Softplus(-0.5) + 0.1 * Softplus(0.5) + Softplus(-0.25)) / 2, 1e-6);
}

TEST(GanLossTest, CrossEntropyOfTheGeneratorByHand) {
  const at::Tensor logits = Logits({1, -2});
  const at::Tensor loss = GeneratorLoss(GanLoss::kNonSaturating, logits);
  EXPECT_NEAR(loss.item<float>(), (Softplus(-1) + Softplus(2)) / 2, 1e-6);
  // Largest where the discriminator is surest: it does not saturate.
  const std::vector<float> gradient = Gradient(loss, logits);
  EXPECT_NEAR(gradient[0], (Sigmoid(1) - 1) / 2, 1e-6);
  EXPECT_NEAR(gradient[1], (Sigmoid(-2) - 1) / 2, 1e-6);
}

TEST(GanLossTest, AnUndecidedDiscriminator) {
  const at::Tensor zeros = Logits({0, 0, 0, 0});
  EXPECT_NEAR(
      DiscriminatorLoss(GanLoss::kNonSaturating, zeros, 0).item<float>(),
      std::log(2.0), 1e-6);
  EXPECT_NEAR(GeneratorLoss(GanLoss::kNonSaturating, zeros).item<float>(),
              std::log(2.0), 1e-6);
  EXPECT_EQ(DiscriminatorLoss(GanLoss::kHinge, zeros, 0).item<float>(), 2);
  EXPECT_EQ(GeneratorLoss(GanLoss::kHinge, zeros).item<float>(), 0);
}

}  // namespace
}  // namespace miniray::ml
