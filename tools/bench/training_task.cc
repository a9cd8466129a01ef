#include "tools/bench/training_task.h"

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/ops/max_pool2d.h"
#include "ATen/ops/relu.h"
#include "torch/nn/functional/loss.h"
#include "torch/types.h"
#include "torch/utils.h"

namespace miniray::bench {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kSide = 32;
constexpr int64_t kClasses = 10;
constexpr uint64_t kWeightsSeed = 1;
constexpr uint64_t kImagesSeed = 100;
constexpr uint64_t kLabelsSeed = 200;

at::Generator Random(uint64_t seed, int shard) {
  return at::make_generator<at::CPUGeneratorImpl>(seed +
                                                  static_cast<uint64_t>(shard));
}

}  // namespace

SmallNetwork::SmallNetwork() {
  torch::manual_seed(kWeightsSeed);
  const auto convolution = [](int64_t in, int64_t out) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, /*kernel_size=*/3).padding(1));
  };
  first = register_module("first", convolution(kChannels, 16));
  second = register_module("second", convolution(16, 32));
  // Each pooling halves both sides.
  const int64_t features = 32 * (kSide / 4) * (kSide / 4);
  hidden = register_module("hidden", torch::nn::Linear(features, 64));
  output = register_module("output", torch::nn::Linear(64, kClasses));
}

at::Tensor SmallNetwork::Forward(const at::Tensor& images) {
  at::Tensor x = at::max_pool2d(at::relu(first(images)), 2);
  x = at::max_pool2d(at::relu(second(x)), 2);
  return output(at::relu(hidden(x.flatten(1))));
}

TrainingTask::TrainingTask(int shard, int64_t samples, int64_t batch_size)
    : batch_size(batch_size),
      images(torch::randn({samples, kChannels, kSide, kSide},
                          Random(kImagesSeed, shard))),
      labels(torch::randint(kClasses, {samples}, Random(kLabelsSeed, shard),
                            torch::kInt64)),
      optimizer(network.parameters(),
                torch::optim::SGDOptions(/*lr=*/0.01).momentum(0.9)) {}

at::Tensor TrainingTask::Loss(int64_t batch) {
  const int64_t begin = batch * batch_size;
  return torch::nn::functional::cross_entropy(
      network.Forward(images.narrow(0, begin, batch_size)),
      labels.narrow(0, begin, batch_size));
}

}  // namespace miniray::bench
