#include "ml/gan/networks.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "ATen/CPUGeneratorImpl.h"
#include "ml/data/mix64.h"

namespace miniray::ml {
namespace {

torch::nn::Linear MakeLinear(int64_t inputs, int64_t outputs,
                             at::Generator& random) {
  torch::nn::Linear linear(inputs, outputs);
  const torch::NoGradGuard no_grad;
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
  linear->weight.uniform_(-bound, bound, random);
  linear->bias.uniform_(-bound, bound, random);
  return linear;
}

// Writes 1 / (1 - probability) or, with the given probability (rounded to a
// multiple of 2^-16), 0 to each of `count` floats. Four values from each 64
// bits of a counter-based generator: at::bernoulli_ takes a tenth of a GAN
// step.
void FillDropoutMask(double probability, uint64_t seed, float* out,
                     int64_t count) {
  const auto threshold = static_cast<uint32_t>(probability * 65536.0 + 0.5);
  const auto scale = static_cast<float>(1.0 / (1.0 - threshold / 65536.0));
  for (int64_t i = 0; i < count; i += 4) {
    uint64_t bits = Mix64(seed + static_cast<uint64_t>(i));
    const int64_t end = std::min(i + 4, count);
    for (int64_t j = i; j < end; ++j, bits >>= 16) {
      out[j] = (bits & 0xffff) < threshold ? 0.0f : scale;
    }
  }
}

uint64_t DrawSeed(at::Generator& random) {
  const std::lock_guard<std::mutex> lock(random.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(random)->random64();
}

}  // namespace

torch::Tensor SeededDropoutImpl::forward(const torch::Tensor& x) {
  if (!is_training()) return x;
  // Made on the CPU in float32, whatever x is: the same for a seed.
  const torch::Tensor mask = torch::empty(x.sizes(), torch::kFloat);
  FillDropoutMask(probability_, DrawSeed(random_), mask.data_ptr<float>(),
                  mask.numel());
  return x * mask.to(x.options());
}

GeneratorImpl::GeneratorImpl(int64_t latent_dim, const ImageShape& shape,
                             at::Generator weights_random)
    : shape_(shape) {
  int64_t inputs = latent_dim;
  for (const int64_t width : kGeneratorWidths) {
    layers_->push_back(MakeLinear(inputs, width, weights_random));
    layers_->push_back(torch::nn::ReLU());
    layers_->push_back(torch::nn::BatchNorm1d(width));
    inputs = width;
  }
  layers_->push_back(MakeLinear(inputs, shape.size(), weights_random));
  layers_->push_back(torch::nn::Tanh());
  register_module("layers", layers_);
}

torch::Tensor GeneratorImpl::forward(const torch::Tensor& noise) {
  return layers_->forward(noise).view(
      {noise.size(0), shape_.channels, shape_.height, shape_.width});
}

DiscriminatorImpl::DiscriminatorImpl(const ImageShape& shape,
                                     at::Generator weights_random,
                                     at::Generator dropout_random) {
  int64_t inputs = shape.size();
  for (const int64_t width : kDiscriminatorWidths) {
    layers_->push_back(MakeLinear(inputs, width, weights_random));
    layers_->push_back(torch::nn::LeakyReLU(
        torch::nn::LeakyReLUOptions().negative_slope(kLeakyReluSlope)));
    layers_->push_back(SeededDropout(kDropoutProbability, dropout_random));
    inputs = width;
  }
  layers_->push_back(MakeLinear(inputs, 1, weights_random));
  register_module("layers", layers_);
}

torch::Tensor DiscriminatorImpl::Logits(const torch::Tensor& images) {
  return layers_->forward(images.flatten(1));
}

}  // namespace miniray::ml
