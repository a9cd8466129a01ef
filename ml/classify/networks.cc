#include "ml/classify/networks.h"

#include <algorithm>
#include <cmath>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/ops/constant_pad_nd.h"
#include "ATen/ops/max_pool2d.h"
#include "ATen/ops/relu.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ml/models/linear.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/pimpl.h"

namespace miniray::ml {
namespace {

constexpr int64_t kSmallestSide = 4;
constexpr int kBlocksInStage = 3;
constexpr int64_t kKernel = 3;

torch::nn::Conv2d MakeConvolution(int64_t in, int64_t out, int64_t stride,
                                  bool bias, at::Generator& random) {
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(in, out, kKernel)
                                    .stride(stride)
                                    .padding(1)
                                    .bias(bias));
  const torch::NoGradGuard no_grad;
  const double variance = 2.0 / static_cast<double>(out * kKernel * kKernel);
  convolution->weight.normal_(0, std::sqrt(variance), random);
  if (bias) convolution->bias.zero_();
  return convolution;
}

class Mlp : public ClassifierNetwork {
 public:
  Mlp(const NetworkSize& size, at::Generator& random)
      : hidden_(register_module(
            "hidden", MakeLinear(size.channels * size.height * size.width,
                                 size.hidden, random))),
        output_(register_module(
            "output", MakeLinear(size.hidden, size.classes, random))) {}

  at::Tensor Features(const at::Tensor& x) override {
    return at::relu(hidden_(x.flatten(1)));
  }

 private:
  at::Tensor Logits(const at::Tensor& features) override {
    return output_(features);
  }

  torch::nn::Linear hidden_;
  torch::nn::Linear output_;
};

class Cnn : public ClassifierNetwork {
 public:
  Cnn(const NetworkSize& size, at::Generator& random)
      : first_(register_module(
            "first", MakeConvolution(size.channels, 32, 1, true, random))),
        second_(register_module("second",
                                MakeConvolution(32, 64, 1, true, random))),
        hidden_(register_module(
            "hidden", MakeLinear(64 * (size.height / 4) * (size.width / 4),
                                 size.hidden, random))),
        output_(register_module(
            "output", MakeLinear(size.hidden, size.classes, random))) {}

  at::Tensor Features(const at::Tensor& x) override {
    at::Tensor y = at::max_pool2d(at::relu(first_(x)), {2, 2});
    y = at::max_pool2d(at::relu(second_(y)), {2, 2});
    return at::relu(hidden_(y.flatten(1)));
  }

 private:
  at::Tensor Logits(const at::Tensor& features) override {
    return output_(features);
  }

  torch::nn::Conv2d first_;
  torch::nn::Conv2d second_;
  torch::nn::Linear hidden_;
  torch::nn::Linear output_;
};

// Two convolutions with a shortcut around them. The BatchNorms behind them have
// the biases.
class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(int64_t in, int64_t out, at::Generator& random)
      : new_channels_(out - in),
        first_(register_module(
            "first",
            MakeConvolution(in, out, out > in ? 2 : 1, false, random))),
        first_norm_(register_module("first_norm", torch::nn::BatchNorm2d(out))),
        second_(register_module("second",
                                MakeConvolution(out, out, 1, false, random))),
        second_norm_(
            register_module("second_norm", torch::nn::BatchNorm2d(out))) {}

  // x: [B, in, H, W]. Returns [B, out, H, W], with half the sides (rounded up)
  // if there are more channels than before.
  at::Tensor Forward(const at::Tensor& x) {
    const at::Tensor y =
        second_norm_(second_(at::relu(first_norm_(first_(x)))));
    if (new_channels_ == 0) return at::relu(x + y);
    const at::Tensor halved =
        x.slice(/*dim=*/2, 0, x.size(2), 2).slice(/*dim=*/3, 0, x.size(3), 2);
    const int64_t before = new_channels_ / 2;
    return at::relu(y + at::constant_pad_nd(halved, {0, 0, 0, 0, before,
                                                     new_channels_ - before}));
  }

 private:
  const int64_t new_channels_;
  torch::nn::Conv2d first_;
  torch::nn::BatchNorm2d first_norm_;
  torch::nn::Conv2d second_;
  torch::nn::BatchNorm2d second_norm_;
};

class ResNet20 : public ClassifierNetwork {
 public:
  ResNet20(const NetworkSize& size, at::Generator& random) {
    int64_t channels = 16;
    first_ = register_module(
        "first", MakeConvolution(size.channels, channels, 1, false, random));
    first_norm_ =
        register_module("first_norm", torch::nn::BatchNorm2d(channels));
    for (const int64_t stage_channels : {16, 32, 64}) {
      for (int i = 0; i < kBlocksInStage; ++i) {
        blocks_.push_back(register_module(
            absl::StrCat("block", blocks_.size()),
            std::make_shared<ResidualBlock>(channels, stage_channels, random)));
        channels = stage_channels;
      }
    }
    output_ =
        register_module("output", MakeLinear(channels, size.classes, random));
  }

  at::Tensor Features(const at::Tensor& x) override {
    at::Tensor y = at::relu(first_norm_(first_(x)));
    for (const auto& block : blocks_) y = block->Forward(y);
    return y.mean({2, 3});
  }

 private:
  at::Tensor Logits(const at::Tensor& features) override {
    return output_(features);
  }

  torch::nn::Conv2d first_ = nullptr;
  torch::nn::BatchNorm2d first_norm_ = nullptr;
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  torch::nn::Linear output_ = nullptr;
};

}  // namespace

const std::vector<std::string>& ClassifierNetworkNames() {
  static const auto* const names =
      new std::vector<std::string>({"mlp", "cnn", "resnet20"});
  return *names;
}

absl::StatusOr<std::shared_ptr<ClassifierNetwork>> MakeClassifierNetwork(
    const std::string& name, const NetworkSize& size, uint64_t seed) {
  if (std::min({size.channels, size.height, size.width, size.classes,
                size.hidden}) < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a classifier needs at least one channel, pixel, class and hidden "
        "unit; got ",
        size.channels, " x ", size.height, " x ", size.width, ", ",
        size.classes, " and ", size.hidden));
  }
  auto random = at::make_generator<at::CPUGeneratorImpl>(seed);
  if (name == "mlp") return std::make_shared<Mlp>(size, random);
  if (name != "cnn" && name != "resnet20") {
    return absl::InvalidArgumentError(
        absl::StrCat("the network is '", name, "'; expected one of ",
                     absl::StrJoin(ClassifierNetworkNames(), ", ")));
  }
  if (std::min(size.height, size.width) < kSmallestSide) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " needs images of at least ", kSmallestSide, " x ", kSmallestSide,
        " pixels; these have ", size.height, " x ", size.width));
  }
  if (name == "cnn") return std::make_shared<Cnn>(size, random);
  return std::make_shared<ResNet20>(size, random);
}

}  // namespace miniray::ml
