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

// Maps noise to images. In order:
//   mlp    Linear, ReLU and BatchNorm three times, then Linear and tanh
//   dcgan  Linear to the smallest maps, BatchNorm and ReLU; transposed
//          convolutions that double the side, with BatchNorm and ReLU between
//          them; tanh
// With classes, an embedding of the label stands behind the noise.
// Source: Radford, Metz, Chintala, "Unsupervised representation learning with
// deep convolutional generative adversarial networks", ICLR 2016; Mirza,
// Osindero, "Conditional generative adversarial nets", 2014.
class GeneratorImpl : public torch::nn::Module {
 public:
  // Draws the initial weights from `weights_random`: for an mlp as
  // torch::nn::Linear does from the global generator, uniform in
  // +-1/sqrt(inputs); for a dcgan from N(0, 0.02), with biases 0; embeddings of
  // labels from N(0, 1), as the noise is.
  // REQUIRES: ValidateGanSizes(sizes).ok().
  GeneratorImpl(const GanSizes& sizes, at::Generator weights_random);

  // noise: float32 [B, Z]; in training mode B >= 2, for the batch statistics.
  // labels: int64 [B] in [0, K); undefined without classes.
  // Returns float32 [B, C, H, W] in [-1, 1].
  torch::Tensor forward(const torch::Tensor& noise,
                        const torch::Tensor& labels = {});

 private:
  const ImageShape shape_;
  torch::nn::Embedding embedding_ = nullptr;  // Null without classes.
  torch::nn::Sequential layers_;
};
TORCH_MODULE(Generator);

// Maps images to the probability of being real. In order:
//   mlp    Linear, LeakyReLU and Dropout three times, then Linear and sigmoid
//   dcgan  convolutions that halve the side, with BatchNorm (but in the first)
//          and LeakyReLU; then Linear and sigmoid
// With classes, the label has its say by projection: the last layer's weights
// are w + v_y, with a row v_y of an embedding for each label y.
// Source: Radford et al. (above); Miyato, Koyama, "cGANs with projection
// discriminator", ICLR 2018.
class DiscriminatorImpl : public torch::nn::Module {
 public:
  // weights_random: as above; embeddings from N(0, 0.02).
  // dropout_random: gives the dropout masks.
  // REQUIRES: ValidateGanSizes(sizes).ok(); its latent_dim plays no part.
  DiscriminatorImpl(const GanSizes& sizes, at::Generator weights_random,
                    at::Generator dropout_random);

  // images: float32 [B, C, H, W]; labels: as above. Returns float32 [B, 1]:
  // what goes into the sigmoid. Losses are computed on it, where
  // log(sigmoid(x)) does not run out of precision.
  torch::Tensor Logits(const torch::Tensor& images,
                       const torch::Tensor& labels = {});

  // Returns float32 [B, 1] in [0, 1].
  torch::Tensor forward(const torch::Tensor& images,
                        const torch::Tensor& labels = {}) {
    return torch::sigmoid(Logits(images, labels));
  }

 private:
  const bool flat_;                           // Layers take [B, D].
  torch::nn::Embedding embedding_ = nullptr;  // Null without classes.
  torch::nn::Sequential layers_;
};
TORCH_MODULE(Discriminator);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_NETWORKS_H_
