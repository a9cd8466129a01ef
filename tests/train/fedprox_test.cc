#include "train/fedprox.h"

#include <cmath>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/torch.h"

namespace miniray::train {
namespace {

using ::testing::HasSubstr;

// loss = mean of (x W^T + b)^2, whatever that is good for.
torch::Tensor LossOf(torch::nn::Linear& model) {
  const torch::Tensor x = torch::tensor({{1.0, 2.0}, {-3.0, 0.5}});
  return model->forward(x.to(torch::kFloat)).square().mean();
}

// Autograd of the whole objective is the reference.
TEST(ProximalTermTest, AddsTheGradientThatAutogradFinds) {
  constexpr double kMu = 0.3;
  torch::manual_seed(1);
  torch::nn::Linear model(2, 3);
  ProximalTerm proximal(kMu);
  proximal.SetCenter(*model);
  std::vector<torch::Tensor> center;
  for (const auto& p : model->parameters()) {
    center.push_back(p.detach().clone());
  }
  {
    const torch::NoGradGuard no_grad;
    for (auto& p : model->parameters()) p.add_(torch::randn_like(p));
  }

  torch::Tensor term = torch::zeros({});
  for (size_t i = 0; i < center.size(); ++i) {
    term = term + kMu / 2 * (model->parameters()[i] - center[i]).square().sum();
  }
  (LossOf(model) + term).backward();
  std::vector<torch::Tensor> expected;
  for (const auto& p : model->parameters()) {
    expected.push_back(p.grad().clone());
  }

  model->zero_grad();
  LossOf(model).backward();
  ASSERT_TRUE(proximal.AddGradient(*model).ok());
  for (size_t i = 0; i < center.size(); ++i) {
    EXPECT_TRUE(torch::allclose(model->parameters()[i].grad(), expected[i],
                                /*rtol=*/1e-5, /*atol=*/1e-6))
        << i;
  }
  EXPECT_NEAR(*proximal.Loss(*model), term.item<double>(), 1e-5);
}

// Gradient descent on mu/2 (w - center)^2 alone: the distance shrinks by
// 1 - lr * mu = 1/2 a step. By hand: center 1, w 3 -> 2 -> 1.5.
TEST(ProximalTermTest, PullsTowardsTheCenter) {
  torch::nn::Linear model(torch::nn::LinearOptions(1, 1).bias(false));
  const auto set = [&](float value) {
    const torch::NoGradGuard no_grad;
    model->weight.fill_(value);
  };
  set(1);
  ProximalTerm proximal(5);
  proximal.SetCenter(*model);
  set(3);
  torch::optim::SGD sgd(model->parameters(), /*lr=*/0.1);
  for (const double expected : {2.0, 1.5}) {
    model->weight.mutable_grad() = torch::zeros_like(model->weight);
    ASSERT_TRUE(proximal.AddGradient(*model).ok());
    sgd.step();
    EXPECT_NEAR(model->weight.item<double>(), expected, 1e-6);
  }
}

TEST(ProximalTermTest, DoesNothingWithoutCenterGradientOrMu) {
  torch::nn::Linear model(2, 2);
  LossOf(model).backward();
  const torch::Tensor before = model->weight.grad().clone();
  ASSERT_TRUE(ProximalTerm(1).AddGradient(*model).ok());
  EXPECT_TRUE(torch::equal(model->weight.grad(), before));
  EXPECT_EQ(*ProximalTerm(1).Loss(*model), 0);

  ProximalTerm proximal(1);
  torch::nn::Linear other(2, 2);
  proximal.SetCenter(*other);
  ASSERT_TRUE(proximal.AddGradient(*other).ok());
  EXPECT_FALSE(other->weight.grad().defined()) << "frozen stays frozen";
}

TEST(ProximalTermTest, LeavesBuffersAlone) {
  torch::nn::BatchNorm1d norm(2);
  ProximalTerm proximal(1);
  proximal.SetCenter(*norm);
  norm->running_mean.fill_(7);
  EXPECT_EQ(*proximal.Loss(*norm), 0);
}

TEST(ProximalTermTest, RefusesAnotherModelAndABadMu) {
  ProximalTerm proximal(1);
  proximal.SetCenter(*torch::nn::Linear(2, 2));
  torch::nn::Linear other(2, 3);
  EXPECT_EQ(proximal.AddGradient(*other).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(proximal.Loss(*other).status().code(),
            absl::StatusCode::kFailedPrecondition);
  for (const double bad : {-1.0, std::nan(""), double{INFINITY}}) {
    EXPECT_THROW(ProximalTerm{bad}, std::invalid_argument) << bad;
  }
}

}  // namespace
}  // namespace miniray::train
