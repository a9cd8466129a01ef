#include "ml/gan/image_generator.h"

#include <algorithm>
#include <cmath>
#include <mutex>
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

at::Tensor StateOf(at::Generator& random) {
  const std::lock_guard<std::mutex> lock(random.mutex());
  return random.get_state();
}

void SetStateOf(at::Generator& random, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(random.mutex());
  random.set_state(state);
}

class TorchImageGenerator final : public ImageGenerator {
 public:
  TorchImageGenerator(const GanModel& model, std::optional<int64_t> label)
      : latent_dim_(model.latent_dim),
        shape_(model.shape),
        classes_(model.classes),
        block_size_(BlockSize(model.sizes())),
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
    for (int64_t block = first - first % block_size_; block < end;
         block += block_size_) {
      const torch::Tensor& part = Block(seed, block);
      const int64_t from = std::max(first, block);
      const int64_t to = std::min(end, block + block_size_);
      images.slice(0, from - first, to - first)
          .copy_(part.slice(0, from - block, to - block));
    }
    return images;
  }

 private:
  // Returns images [first, first + block_size_). The last block is kept, for
  // callers that want it in small pieces.
  const torch::Tensor& Block(uint64_t seed, int64_t first) {
    if (!block_.defined() || seed != block_seed_ || first != block_first_) {
      block_ = generator_->forward(
          GeneratorNoise(seed, first, block_size_, latent_dim_), Labels(first));
      block_seed_ = seed;
      block_first_ = first;
    }
    return block_;
  }

  // Of images [first, first + block_size_); undefined without classes.
  torch::Tensor Labels(int64_t first) const {
    if (classes_ == 0) return {};
    if (label_.has_value()) {
      return torch::full({block_size_}, *label_, torch::kLong);
    }
    return torch::arange(first, first + block_size_, torch::kLong)
        .remainder(classes_);
  }

  const int64_t latent_dim_;
  const ImageShape shape_;
  const int64_t classes_;
  const int64_t block_size_;
  const std::optional<int64_t> label_;
  Generator generator_;
  torch::Tensor block_;  // [block_size_, C, H, W] or undefined.
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

int64_t ImageGenerator::BlockSize(const GanSizes& sizes) {
  if (sizes.architecture == GanArchitecture::kMlp) return kBlock;
  constexpr int64_t kPixels = kBlock * 128 * 128;
  return std::clamp<int64_t>(kPixels / (sizes.shape.height * sizes.shape.width),
                             1, kBlock);
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
  // LibTorch's modules draw first weights from it, which are never seen.
  at::Generator random = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = StateOf(random);
  auto generator = std::make_unique<TorchImageGenerator>(model, label);
  SetStateOf(random, state);
  return generator;
}

}  // namespace miniray::ml
