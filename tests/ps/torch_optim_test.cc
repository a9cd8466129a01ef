// The optimizers on the server against LibTorch's own: the same gradients give
// the same weights, to the rounding of floats.

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/strategy_testutil.h"
#include "torch/optim.h"

namespace miniray::ps {
namespace {

constexpr int kSteps = 50;

struct Case {
  std::string name;
  std::string strategy;
  StrategyOptions options;
  std::function<std::unique_ptr<torch::optim::Optimizer>(
      std::vector<torch::Tensor>)>
      make;
};

template <class Optimizer, class Options>
auto With(const Options& options) {
  return [options](std::vector<torch::Tensor> parameters)
             -> std::unique_ptr<torch::optim::Optimizer> {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

std::vector<Case> Cases() {
  using torch::optim::Adagrad;
  using torch::optim::AdagradOptions;
  using torch::optim::Adam;
  using torch::optim::AdamOptions;
  using torch::optim::AdamW;
  using torch::optim::AdamWOptions;
  using torch::optim::SGD;
  using torch::optim::SGDOptions;
  return {
      {"Sgd", "sgd", {{"lr", 0.1}}, With<SGD>(SGDOptions(0.1))},
      {"SgdMomentum",
       "sgd",
       {{"lr", 0.1},
        {"momentum", 0.9},
        {"dampening", 0.3},
        {"weight_decay", 0.02}},
       With<SGD>(
           SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.02))},
      {"SgdNesterov",
       "sgd",
       {{"lr", 0.1},
        {"momentum", 0.9},
        {"weight_decay", 0.02},
        {"nesterov", true}},
       With<SGD>(
           SGDOptions(0.1).momentum(0.9).weight_decay(0.02).nesterov(true))},
      {"AdamDefaults", "adam", {}, With<Adam>(AdamOptions())},
      {"Adam",
       "adam",
       {{"lr", 0.02}, {"beta1", 0.8}, {"beta2", 0.95}, {"weight_decay", 0.1}},
       With<Adam>(AdamOptions(0.02).betas({0.8, 0.95}).weight_decay(0.1))},
      {"AdamWDefaults", "adamw", {}, With<AdamW>(AdamWOptions())},
      {"AdamW",
       "adamw",
       {{"lr", 0.02},
        {"beta1", 0.8},
        {"beta2", 0.95},
        {"eps", 1e-3},
        {"weight_decay", 0.3}},
       With<AdamW>(
           AdamWOptions(0.02).betas({0.8, 0.95}).eps(1e-3).weight_decay(0.3))},
      {"AdagradDefaults", "adagrad", {}, With<Adagrad>(AdagradOptions())},
      {"Adagrad",
       "adagrad",
       {{"lr", 0.1},
        {"lr_decay", 0.05},
        {"weight_decay", 0.1},
        {"initial_accumulator_value", 0.2},
        {"eps", 1e-3}},
       With<Adagrad>(AdagradOptions(0.1)
                         .lr_decay(0.05)
                         .weight_decay(0.1)
                         .initial_accumulator_value(0.2)
                         .eps(1e-3))},
  };
}

// What the gradients of a model may be: they depend on the weights.
torch::Tensor GradientAt(const torch::Tensor& weights, int step) {
  const torch::Tensor phase =
      torch::arange(weights.numel(), weights.options()).view(weights.sizes());
  return weights * 0.5 + torch::sin(phase * 0.7 + step);
}

class TorchOptimTest : public ::testing::TestWithParam<Case> {};

void ExpectEqualTraining(const Case& c, at::ScalarType type, double tolerance) {
  torch::manual_seed(1);
  NamedTensors weights = {{"a", torch::randn({7, 11}).to(type)},
                          {"b", torch::randn({1500}).to(type)}};
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, tensor] : weights) {
    parameters.push_back(tensor.clone().requires_grad_());
  }
  const auto optimizer = c.make(parameters);
  const auto strategy = Create(c.strategy, c.options);
  strategy->Reset(weights);
  for (int step = 0; step < kSteps; ++step) {
    // Each from its own weights: a difference would grow.
    NamedTensors gradients;
    for (size_t i = 0; i < weights.size(); ++i) {
      gradients.emplace_back(weights[i].first,
                             GradientAt(weights[i].second, step));
      parameters[i].mutable_grad() = GradientAt(parameters[i].detach(), step);
    }
    optimizer->step();
    weights = AggregateModel(*strategy, Contributions({gradients}));
    ASSERT_EQ(weights.size(), parameters.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      const double difference = (weights[i].second - parameters[i].detach())
                                    .abs()
                                    .max()
                                    .item<double>();
      ASSERT_LE(difference, tolerance) << "step " << step;
    }
  }
}

TEST_P(TorchOptimTest, TakesTheSameStepsInFloats) {
  ExpectEqualTraining(GetParam(), at::kFloat, 2e-5);
}

TEST_P(TorchOptimTest, TakesTheSameStepsInDoubles) {
  ExpectEqualTraining(GetParam(), at::kDouble, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(All, TorchOptimTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace miniray::ps
