// The models of ml/, each written straight on LibTorch as its users write them:
// torch::nn modules, LibTorch's optimizers and losses, one batch behind the
// other. Nothing of ml/ is in them.
//
// Needs LibTorch's front end, which is slow to compile: include it in sources,
// not in headers.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_PLAIN_MODELS_H_
#define MINIRAY_TOOLS_BENCH_PEERS_PLAIN_MODELS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/bench/model_steps.h"
#include "torch/nn.h"

namespace miniray::bench {

// Maps noise to images: the mlp, with or without classes, or the dcgan.
struct PlainGeneratorImpl : torch::nn::Module {
  // classes: 0 for none; not of a dcgan.
  PlainGeneratorImpl(bool dcgan, int64_t classes);
  // noise: float32 [B, Z]; labels: int64 [B], of no use without classes.
  // Returns float32 [B, C, H, W] in [-1, 1].
  torch::Tensor forward(const torch::Tensor& noise,
                        const torch::Tensor& labels);

  torch::nn::Embedding embedding = nullptr;  // Null without classes.
  torch::nn::Sequential layers = nullptr;
};
TORCH_MODULE(PlainGenerator);

// Judges them: above 0 means real.
struct PlainDiscriminatorImpl : torch::nn::Module {
  PlainDiscriminatorImpl(bool dcgan, int64_t classes);
  // images: float32 [B, C, H, W]. Returns float32 [B, 1].
  torch::Tensor forward(const torch::Tensor& images,
                        const torch::Tensor& labels);

  torch::nn::Embedding embedding = nullptr;
  torch::nn::Sequential layers = nullptr;
  torch::nn::Linear output = nullptr;
};
TORCH_MODULE(PlainDiscriminator);

// Errors: INVALID_ARGUMENT, no such name.
absl::StatusOr<std::unique_ptr<SteppedModel>> MakePlainModel(
    const std::string& name, int64_t batch_size);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_PLAIN_MODELS_H_
