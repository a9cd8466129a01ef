#include "tools/bench/resnet20.h"

#include "ATen/ops/constant_pad_nd.h"
#include "ATen/ops/relu.h"
#include "absl/strings/str_cat.h"

namespace miniray::bench {
namespace {

constexpr int64_t kImageChannels = 3;
constexpr int64_t kClasses = 10;
constexpr int kBlocksInStage = 3;

// 3 x 3; the BatchNorm behind it has the bias.
torch::nn::Conv2d Convolution(int64_t in, int64_t out, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, /*kernel_size=*/3)
                               .stride(stride)
                               .padding(1)
                               .bias(false));
}

}  // namespace

ResidualBlock::ResidualBlock(int64_t channels_in, int64_t channels)
    : new_channels(channels - channels_in) {
  first = register_module(
      "first", Convolution(channels_in, channels, new_channels > 0 ? 2 : 1));
  first_norm = register_module("first_norm", torch::nn::BatchNorm2d(channels));
  second = register_module("second", Convolution(channels, channels, 1));
  second_norm =
      register_module("second_norm", torch::nn::BatchNorm2d(channels));
}

at::Tensor ResidualBlock::Forward(const at::Tensor& x) {
  const at::Tensor y = second_norm(second(at::relu(first_norm(first(x)))));
  if (new_channels == 0) return at::relu(x + y);
  const at::Tensor halved =
      x.slice(/*dim=*/2, 0, x.size(2), 2).slice(/*dim=*/3, 0, x.size(3), 2);
  const int64_t before = new_channels / 2;
  return at::relu(y + at::constant_pad_nd(
                          halved, {0, 0, 0, 0, before, new_channels - before}));
}

ResNet20Impl::ResNet20Impl() {
  int64_t channels = 16;
  first = register_module("first", Convolution(kImageChannels, channels, 1));
  first_norm = register_module("first_norm", torch::nn::BatchNorm2d(channels));
  for (const int64_t stage_channels : {16, 32, 64}) {
    for (int i = 0; i < kBlocksInStage; ++i) {
      blocks.push_back(register_module(
          absl::StrCat("block", blocks.size()),
          std::make_shared<ResidualBlock>(channels, stage_channels)));
      channels = stage_channels;
    }
  }
  output = register_module("output", torch::nn::Linear(channels, kClasses));
}

at::Tensor ResNet20Impl::forward(const at::Tensor& images) {
  at::Tensor x = at::relu(first_norm(first(images)));
  for (const auto& block : blocks) x = block->Forward(x);
  return output(x.mean({2, 3}));
}

}  // namespace miniray::bench
