#include "ml/regress/regressor.h"

#include <cmath>
#include <limits>

#include "ATen/ATen.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kAborted;
using absl::StatusCode::kInvalidArgument;

std::unique_ptr<Regressor> Make(RegressorOptions options) {
  auto regressor = Regressor::Create(options);
  EXPECT_TRUE(regressor.ok()) << regressor.status();
  return *std::move(regressor);
}

// prediction = 3 relu(2 relu(x0 - x1)) + 1.
std::unique_ptr<Regressor> Tiny() {
  auto regressor = Make({.inputs = 2, .hidden = 1, .lr = 0.5});
  const absl::Status set = regressor->SetWeights(
      {{"hidden1.weight", at::tensor({1.0F, -1.0F}).view({1, 2})},
       {"hidden1.bias", at::zeros({1})},
       {"hidden2.weight", at::full({1, 1}, 2.0F)},
       {"hidden2.bias", at::zeros({1})},
       {"output.weight", at::full({1, 1}, 3.0F)},
       {"output.bias", at::ones({1})}});
  EXPECT_TRUE(set.ok()) << set;
  return regressor;
}

// Rows (5, 3) and (0, 4).
at::Tensor TwoRows() {
  return at::tensor({5.0F, 3.0F, 0.0F, 4.0F}).view({2, 2});
}

TEST(RegressorTest, PredictsAsOneWorksItOut) {
  // 3 * 2 * 2 + 1 = 13, and nothing passes the first relu: 1.
  EXPECT_TRUE(at::equal(Tiny()->Predict(TwoRows()), at::tensor({13.0F, 1.0F})));
  const RegressionErrors errors =
      Tiny()->Evaluate(TwoRows(), at::tensor({12.0F, 4.0F}));
  EXPECT_DOUBLE_EQ(errors.squared, (1.0 + 9.0) / 2);
  EXPECT_DOUBLE_EQ(errors.absolute, (1.0 + 3.0) / 2);
}

TEST(RegressorTest, AStepGoesAgainstTheGradient) {
  const auto regressor = Tiny();
  regressor->BeginEpoch(0);
  const auto loss = regressor->TrainStep(TwoRows(), at::tensor({12.0F, 4.0F}));
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_DOUBLE_EQ(*loss, 5);
  // Adam's first step is lr times the gradient's sign. Of the mean squared
  // error it is (13 - 12) + (1 - 4) = -2 for output.bias, and (13 - 12) * 4 > 0
  // for output.weight.
  const NamedTensors weights = regressor->Weights();
  EXPECT_EQ(weights[4].first, "output.weight");
  EXPECT_NEAR(weights[4].second.item<float>(), 3 - 0.5, 1e-5);
  EXPECT_EQ(weights[5].first, "output.bias");
  EXPECT_NEAR(weights[5].second.item<float>(), 1 + 0.5, 1e-5);
}

TEST(RegressorTest, LearnsALine) {
  const auto regressor =
      Make({.inputs = 3, .hidden = 16, .lr = 0.01, .seed = 4});
  const at::Tensor x =
      at::linspace(-1, 1, 120, at::kFloat).view({40, 3}).contiguous();
  const at::Tensor y = x.select(1, 0) - 2 * x.select(1, 2) + 0.5;
  const double before = regressor->Evaluate(x, y).squared;
  for (int epoch = 0; epoch < 200; ++epoch) {
    regressor->BeginEpoch(epoch);
    ASSERT_TRUE(regressor->TrainStep(x, y).ok());
    ASSERT_TRUE(regressor->EndEpoch().ok());
  }
  EXPECT_LT(regressor->Evaluate(x, y).squared, 0.01 * before);
}

TEST(RegressorTest, GoesOnFromItsState) {
  const at::Tensor x = TwoRows();
  const at::Tensor y = at::tensor({12.0F, 4.0F});
  const auto train = [&](Regressor& regressor, int epoch) {
    regressor.BeginEpoch(epoch);
    EXPECT_TRUE(regressor.TrainStep(x, y).ok());
    EXPECT_TRUE(regressor.EndEpoch().ok());
  };
  const auto one = Make({.inputs = 2, .hidden = 8, .seed = 1});
  train(*one, 0);
  const auto state = one->SaveState();
  ASSERT_TRUE(state.ok()) << state.status();
  train(*one, 1);

  const auto other = Make({.inputs = 2, .hidden = 8, .seed = 2});
  ASSERT_TRUE(other->LoadState(*state).ok());
  train(*other, 1);
  EXPECT_TRUE(at::equal(other->Predict(x), one->Predict(x)));
  train::CheckpointFiles lacking = *state;
  lacking.erase("model.loop");
  EXPECT_EQ(other->LoadState(lacking).code(), kInvalidArgument);
}

TEST(RegressorTest, RefusesWhatCannotBe) {
  EXPECT_EQ(Regressor::Create({.inputs = 0}).status().code(), kInvalidArgument);
  EXPECT_EQ(Regressor::Create({.hidden = 0}).status().code(), kInvalidArgument);
  EXPECT_EQ(Regressor::Create({.lr = 0}).status().code(), kInvalidArgument);
  EXPECT_EQ(Regressor::Create({.lr = std::nan("")}).status().code(),
            kInvalidArgument);
  const auto regressor = Tiny();
  regressor->BeginEpoch(0);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(regressor->TrainStep(TwoRows(), at::tensor({infinity, 0.0F}))
                .status()
                .code(),
            kAborted);
}

}  // namespace
}  // namespace miniray::ml
