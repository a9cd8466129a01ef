// ResNet-20 for images of CIFAR-10's shape, 269,722 parameters.
//
// Source: He et al., Deep Residual Learning for Image Recognition, CVPR 2016,
// section 4.2, n = 3, with option A: where sides are halved, the shortcut takes
// every second pixel and fills the new channels with zeros.
//
// Needs LibTorch's front end, which is slow to compile: include it in sources,
// not in headers.

#ifndef MINIRAY_TOOLS_BENCH_RESNET20_H_
#define MINIRAY_TOOLS_BENCH_RESNET20_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "torch/nn/module.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/pimpl.h"

namespace miniray::bench {

// Two convolutions with a shortcut around them.
struct ResidualBlock : torch::nn::Module {
  ResidualBlock(int64_t channels_in, int64_t channels);
  // x: float32 [B, channels_in, S, S]. Returns [B, channels, S, S], with half
  // the side if there are more channels than before.
  at::Tensor Forward(const at::Tensor& x);

  const int64_t new_channels;
  torch::nn::Conv2d first = nullptr;
  torch::nn::BatchNorm2d first_norm = nullptr;
  torch::nn::Conv2d second = nullptr;
  torch::nn::BatchNorm2d second_norm = nullptr;
};

struct ResNet20Impl : torch::nn::Module {
  ResNet20Impl();
  // images: float32 [B, 3, 32, 32]. Returns logits, [B, 10].
  at::Tensor forward(const at::Tensor& images);

  torch::nn::Conv2d first = nullptr;
  torch::nn::BatchNorm2d first_norm = nullptr;
  std::vector<std::shared_ptr<ResidualBlock>> blocks;
  torch::nn::Linear output = nullptr;
};
TORCH_MODULE(ResNet20);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_RESNET20_H_
