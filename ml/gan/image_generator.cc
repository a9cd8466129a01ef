#include "ml/gan/image_generator.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/strings/str_cat.h"
#include "ml/data/mix64.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/networks.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// Returns a uniform draw from (0, 1].
double DrawUnit(std::mt19937_64& random) {
  return static_cast<double>((random() >> 11) + 1) * 0x1p-53;
}

class TorchImageGenerator final : public ImageGenerator {
 public:
  TorchImageGenerator(const GanModel& model, std::optional<int64_t> label)
      : latent_dim_(model.latent_dim),
        shape_(model.shape),
        classes_(model.classes),
        label_(label),
        generator_(model.sizes(), at::make_generator<at::CPUGeneratorImpl>()) {
    const torch::NoGradGuard no_grad;
    auto parameters = generator_->named_parameters();
    auto buffers = generator_->named_buffers();
    for (const auto& [name, value] : model.weights) {
      torch::Tensor* target = parameters.find(name);
      if (target == nullptr) target = buffers.find(name);
      target->copy_(value);
    }
    generator_->eval();
  }

  at::Tensor Generate(uint64_t seed, int64_t first, int64_t count) override {
    const torch::NoGradGuard no_grad;
    const int64_t end = first + count;
    torch::Tensor images =
        torch::empty({count, shape_.channels, shape_.height, shape_.width});
    for (int64_t block = first - first % kBlock; block < end; block += kBlock) {
      const torch::Tensor& part = Block(seed, block);
      const int64_t from = std::max(first, block);
      const int64_t to = std::min(end, block + kBlock);
      images.slice(0, from - first, to - first)
          .copy_(part.slice(0, from - block, to - block));
    }
    return images;
  }

 private:
  // Returns images [first, first + kBlock). The last block is kept, for callers
  // that want it in small pieces.
  const torch::Tensor& Block(uint64_t seed, int64_t first) {
    if (!block_.defined() || seed != block_seed_ || first != block_first_) {
      block_ = generator_->forward(
          GeneratorNoise(seed, first, kBlock, latent_dim_), Labels(first));
      block_seed_ = seed;
      block_first_ = first;
    }
    return block_;
  }

  // Of images [first, first + kBlock); undefined without classes.
  torch::Tensor Labels(int64_t first) const {
    if (classes_ == 0) return {};
    if (label_.has_value()) {
      return torch::full({kBlock}, *label_, torch::kLong);
    }
    return torch::arange(first, first + kBlock, torch::kLong)
        .remainder(classes_);
  }

  const int64_t latent_dim_;
  const ImageShape shape_;
  const int64_t classes_;
  const std::optional<int64_t> label_;
  Generator generator_;
  torch::Tensor block_;  // [kBlock, C, H, W] or undefined.
  uint64_t block_seed_ = 0;
  int64_t block_first_ = 0;
};

}  // namespace

at::Tensor GeneratorNoise(uint64_t seed, int64_t first, int64_t count,
                          int64_t latent_dim) {
  torch::Tensor noise = torch::empty({count, latent_dim});
  float* out = noise.data_ptr<float>();
  for (int64_t row = 0; row < count; ++row, out += latent_dim) {
    std::mt19937_64 random(
        Mix64(Mix64(seed) + static_cast<uint64_t>(first + row)));
    for (int64_t i = 0; i < latent_dim; i += 2) {
      const double radius = std::sqrt(-2.0 * std::log(DrawUnit(random)));
      const double angle = 2.0 * M_PI * DrawUnit(random);
      out[i] = static_cast<float>(radius * std::cos(angle));
      if (i + 1 < latent_dim) {
        out[i + 1] = static_cast<float>(radius * std::sin(angle));
      }
    }
  }
  return noise;
}

absl::StatusOr<std::unique_ptr<ImageGenerator>> ImageGenerator::Create(
    const GanModel& model, std::optional<int64_t> label) {
  if (model.network != GanNetwork::kGenerator) {
    return absl::InvalidArgumentError(
        "images come from a generator, not from a discriminator");
  }
  MR_RETURN_IF_ERROR(ValidateGanSizes(model.sizes()));
  MR_RETURN_IF_ERROR(CheckTensors(GanTensors(model.network, model.sizes()),
                                  model.weights, "the generator"));
  if (label.has_value() && (*label < 0 || *label >= model.classes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images of class ", *label, " are asked for; the model ",
        model.classes == 0
            ? "has no classes"
            : absl::StrCat("has classes 0 to ", model.classes - 1)));
  }
  return std::make_unique<TorchImageGenerator>(model, label);
}

}  // namespace miniray::ml
