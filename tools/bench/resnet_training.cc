#include "tools/bench/resnet_training.h"

#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "torch/nn/functional/loss.h"
#include "torch/types.h"

namespace miniray::bench {
namespace {

constexpr int64_t kNumBatches = 8;
constexpr int64_t kChannels = 3;
constexpr int64_t kSide = 32;
constexpr int64_t kClasses = 10;
constexpr uint64_t kDataSeed = 100;

}  // namespace

ResNetTraining::ResNetTraining(ResNet20 network, int shard, int64_t batch_size)
    : network_(std::move(network)),
      batch_size_(batch_size),
      optimizer_(network_->parameters(),
                 torch::optim::SGDOptions(/*lr=*/0.01).momentum(0.9)) {
  const at::Generator random = at::make_generator<at::CPUGeneratorImpl>(
      kDataSeed + static_cast<uint64_t>(shard));
  const at::Device device = network_->parameters().front().device();
  for (int64_t i = 0; i < kNumBatches; ++i) {
    batches_.push_back(
        {.images = torch::randn({batch_size, kChannels, kSide, kSide}, random)
                       .to(device),
         .labels = torch::randint(kClasses, {batch_size}, random, torch::kInt64)
                       .to(device)});
  }
}

double ResNetTraining::Train(int64_t steps) {
  const absl::Time start = absl::Now();
  for (int64_t i = 0; i < steps; ++i) {
    const Batch& batch = batches_[static_cast<size_t>(steps_++ % kNumBatches)];
    optimizer_.zero_grad();
    loss_ = torch::nn::functional::cross_entropy(network_(batch.images),
                                                 batch.labels);
    loss_.backward();
    optimizer_.step();
  }
  // On a GPU the steps are done only then.
  loss_.item<float>();
  return static_cast<double>(steps * batch_size_) /
         absl::ToDoubleSeconds(absl::Now() - start);
}

int64_t ResNetTraining::num_parameters() const {
  int64_t sum = 0;
  for (const at::Tensor& parameter : network_->parameters()) {
    sum += parameter.numel();
  }
  return sum;
}

double ResNetTraining::SumOfWeights() const {
  double sum = 0;
  for (const at::Tensor& parameter : network_->parameters()) {
    sum += parameter.detach().sum(at::kDouble).item<double>();
  }
  return sum;
}

}  // namespace miniray::bench
