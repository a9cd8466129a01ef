#include "ml/gan/networks.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "ml/data/mix64.h"
#include "ml/models/linear.h"

namespace miniray::ml {
namespace {

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

// Of a dcgan's weights.
constexpr double kDcganDeviation = 0.02;

torch::nn::Embedding MakeEmbedding(int64_t rows, int64_t columns,
                                   double deviation, at::Generator& random) {
  torch::nn::Embedding embedding(rows, columns);
  const torch::NoGradGuard no_grad;
  embedding->weight.normal_(0, deviation, random);
  return embedding;
}

// Gives a dcgan's layer its initial weights.
template <class Layer>
Layer Initialised(Layer layer, at::Generator& random) {
  const torch::NoGradGuard no_grad;
  layer->weight.normal_(0, kDcganDeviation, random);
  if (layer->bias.defined()) layer->bias.zero_();
  return layer;
}

torch::nn::LeakyReLU MakeLeakyReLU() {
  return torch::nn::LeakyReLU(
      torch::nn::LeakyReLUOptions().negative_slope(kLeakyReluSlope));
}

// The layers of architecture.cc, in its order.

void AddMlpGenerator(int64_t inputs, const ImageShape& shape,
                     at::Generator& random, torch::nn::SequentialImpl& layers) {
  for (const int64_t width : kGeneratorWidths) {
    layers.push_back(MakeLinear(inputs, width, random));
    layers.push_back(torch::nn::ReLU());
    layers.push_back(torch::nn::BatchNorm1d(width));
    inputs = width;
  }
  layers.push_back(MakeLinear(inputs, shape.size(), random));
  layers.push_back(torch::nn::Tanh());
}

void AddMlpDiscriminator(const ImageShape& shape, at::Generator& random,
                         const at::Generator& dropout_random,
                         torch::nn::SequentialImpl& layers) {
  int64_t inputs = shape.size();
  for (const int64_t width : kDiscriminatorWidths) {
    layers.push_back(MakeLinear(inputs, width, random));
    layers.push_back(MakeLeakyReLU());
    layers.push_back(SeededDropout(kDropoutProbability, dropout_random));
    inputs = width;
  }
  layers.push_back(MakeLinear(inputs, 1, random));
}

void AddDcganGenerator(int64_t inputs, const ImageShape& shape,
                       at::Generator& random,
                       torch::nn::SequentialImpl& layers) {
  const DcganStages stages = *DcganStagesFor(shape);
  layers.push_back(Initialised(
      torch::nn::Linear(
          torch::nn::LinearOptions(inputs, stages.features()).bias(false)),
      random));
  layers.push_back(torch::nn::Unflatten(torch::nn::UnflattenOptions(
      1, {stages.widths.back(), stages.smallest, stages.smallest})));
  for (size_t i = stages.widths.size(); i-- > 0;) {
    layers.push_back(torch::nn::BatchNorm2d(stages.widths[i]));
    layers.push_back(torch::nn::ReLU());
    const bool last = i == 0;
    layers.push_back(Initialised(
        torch::nn::ConvTranspose2d(
            torch::nn::ConvTranspose2dOptions(
                stages.widths[i], last ? shape.channels : stages.widths[i - 1],
                kDcganKernel)
                .stride(kDcganStride)
                .padding(kDcganPadding)
                .bias(last)),
        random));
  }
  layers.push_back(torch::nn::Tanh());
}

void AddDcganDiscriminator(const ImageShape& shape, at::Generator& random,
                           torch::nn::SequentialImpl& layers) {
  const DcganStages stages = *DcganStagesFor(shape);
  for (size_t i = 0; i < stages.widths.size(); ++i) {
    const bool first = i == 0;
    layers.push_back(Initialised(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(
                              first ? shape.channels : stages.widths[i - 1],
                              stages.widths[i], kDcganKernel)
                              .stride(kDcganStride)
                              .padding(kDcganPadding)
                              .bias(first)),
        random));
    if (!first) layers.push_back(torch::nn::BatchNorm2d(stages.widths[i]));
    layers.push_back(MakeLeakyReLU());
  }
  layers.push_back(torch::nn::Flatten());
  layers.push_back(
      Initialised(torch::nn::Linear(stages.features(), 1), random));
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

GeneratorImpl::GeneratorImpl(const GanSizes& sizes,
                             at::Generator weights_random)
    : shape_(sizes.shape) {
  int64_t inputs = sizes.latent_dim;
  if (sizes.classes > 0) {
    embedding_ = register_module(
        "embedding", MakeEmbedding(sizes.classes, kLabelSize, /*deviation=*/1,
                                   weights_random));
    inputs += kLabelSize;
  }
  if (sizes.architecture == GanArchitecture::kMlp) {
    AddMlpGenerator(inputs, shape_, weights_random, *layers_);
  } else {
    AddDcganGenerator(inputs, shape_, weights_random, *layers_);
  }
  register_module("layers", layers_);
}

torch::Tensor GeneratorImpl::forward(const torch::Tensor& noise,
                                     const torch::Tensor& labels) {
  const torch::Tensor start =
      embedding_.is_empty()
          ? noise
          : torch::cat({noise, embedding_->forward(labels)}, /*dim=*/1);
  return layers_->forward(start).view(
      {noise.size(0), shape_.channels, shape_.height, shape_.width});
}

DiscriminatorImpl::DiscriminatorImpl(const GanSizes& sizes,
                                     at::Generator weights_random,
                                     at::Generator dropout_random)
    : flat_(sizes.architecture == GanArchitecture::kMlp) {
  if (sizes.classes > 0) {
    const int64_t features = flat_ ? kDiscriminatorWidths.back()
                                   : DcganStagesFor(sizes.shape)->features();
    embedding_ = register_module(
        "embedding", MakeEmbedding(sizes.classes, features, kDcganDeviation,
                                   weights_random));
  }
  if (flat_) {
    AddMlpDiscriminator(sizes.shape, weights_random, dropout_random, *layers_);
  } else {
    AddDcganDiscriminator(sizes.shape, weights_random, *layers_);
  }
  register_module("layers", layers_);
}

torch::Tensor DiscriminatorImpl::Logits(const torch::Tensor& images,
                                        const torch::Tensor& labels) {
  torch::Tensor x = flat_ ? images.flatten(1) : images;
  const auto last = layers_->end() - 1;
  for (auto layer = layers_->begin(); layer != last; ++layer) {
    x = layer->forward(std::move(x));
  }
  torch::Tensor logits = last->forward(x);
  if (!embedding_.is_empty()) {
    logits = logits + (embedding_->forward(labels) * x).sum(1, true);
  }
  return logits;
}

}  // namespace miniray::ml
