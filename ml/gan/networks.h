// The GAN's two networks as LibTorch modules, with the sizes of architecture.h.
// Shape letters as there.
//
// Includes torch's module headers, which take 15 s to compile: outside this
// folder, include gan.h or image_generator.h instead.

#ifndef MINIRAY_ML_GAN_NETWORKS_H_
#define MINIRAY_ML_GAN_NETWORKS_H_

#include <cstdint>
#include <utility>

#include "ml/gan/architecture.h"
#include "torch/nn.h"

namespace miniray::ml {

// Dropout that draws from a generator of its own instead of LibTorch's global
// one, so that a run depends on its seed and on nothing else in the process.
class SeededDropoutImpl : public torch::nn::Module {
 public:
  SeededDropoutImpl(double probability, at::Generator random)
      : probability_(probability), random_(std::move(random)) {}

  // In training mode, zeroes each value with the probability and scales the
  // rest by 1 / (1 - probability); else returns x.
  torch::Tensor forward(const torch::Tensor& x);

 private:
  const double probability_;
  at::Generator random_;
};
TORCH_MODULE(SeededDropout);

// Maps noise to images: Linear, ReLU and BatchNorm three times, then Linear and
// tanh.
class GeneratorImpl : public torch::nn::Module {
 public:
  // Draws the initial weights from `weights_random` as torch::nn::Linear does
  // from the global generator: uniform in +-1/sqrt(inputs). REQUIRES:
  // ValidateGanSizes(latent_dim, shape).ok().
  GeneratorImpl(int64_t latent_dim, const ImageShape& shape,
                at::Generator weights_random);

  // noise: float32 [B, Z]; in training mode B >= 2, for the batch statistics.
  // Returns float32 [B, C, H, W] in [-1, 1].
  torch::Tensor forward(const torch::Tensor& noise);

 private:
  const ImageShape shape_;
  torch::nn::Sequential layers_;
};
TORCH_MODULE(Generator);

// Maps images to the probability of being real: Linear, LeakyReLU and Dropout
// three times, then Linear and sigmoid.
class DiscriminatorImpl : public torch::nn::Module {
 public:
  // weights_random: as above.  dropout_random: gives the dropout masks.
  // REQUIRES: ValidateGanSizes holds for `shape`.
  DiscriminatorImpl(const ImageShape& shape, at::Generator weights_random,
                    at::Generator dropout_random);

  // images: float32 [B, C, H, W] or [B, D]. Returns float32 [B, 1]: what goes
  // into the sigmoid. Losses are computed on it, where log(sigmoid(x)) does not
  // run out of precision.
  torch::Tensor Logits(const torch::Tensor& images);

  // Returns float32 [B, 1] in [0, 1].
  torch::Tensor forward(const torch::Tensor& images) {
    return torch::sigmoid(Logits(images));
  }

 private:
  torch::nn::Sequential layers_;
};
TORCH_MODULE(Discriminator);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_NETWORKS_H_
