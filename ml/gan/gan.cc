#include "ml/gan/gan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/strings/str_cat.h"
#include "ml/gan/fused_adam.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/networks.h"
#include "runtime/base/status_macros.h"
#include "torch/nn.h"
#include "train/training_state.h"

namespace miniray::ml {
namespace {

at::Generator MakeRandom(uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

torch::optim::AdamOptions AdamOptions(double lr) {
  return torch::optim::AdamOptions(lr).betas({0.5, 0.999});
}

// Keeps a module's parameters out of autograd while it lives.
class FreezeParameters {
 public:
  explicit FreezeParameters(std::vector<torch::Tensor> parameters)
      : parameters_(std::move(parameters)) {
    for (torch::Tensor& p : parameters_) p.set_requires_grad(false);
  }
  ~FreezeParameters() {
    for (torch::Tensor& p : parameters_) p.set_requires_grad(true);
  }
  FreezeParameters(const FreezeParameters&) = delete;
  FreezeParameters& operator=(const FreezeParameters&) = delete;

 private:
  std::vector<torch::Tensor> parameters_;
};

class TorchGan final : public Gan {
 public:
  explicit TorchGan(const GanOptions& options)
      : options_(options),
        random_(MakeRandom(options.noise_seed)),
        weights_random_(MakeRandom(options.weights_seed)),
        generator_(options.latent_dim, options.shape, weights_random_),
        discriminator_(options.shape, weights_random_, random_),
        generator_adam_(generator_->parameters(), AdamOptions(options.lr)),
        discriminator_adam_(discriminator_->parameters(),
                            AdamOptions(options.lr)) {
    ResetLosses();
  }

  void DiscriminatorStep(const at::Tensor& real) override {
    const ImageShape& shape = options_.shape;
    TORCH_CHECK(
        real.dim() == 4 && real.size(0) >= 2 &&
            real.size(1) == shape.channels && real.size(2) == shape.height &&
            real.size(3) == shape.width && real.scalar_type() == at::kFloat,
        "expected float images [B >= 2, ", shape.channels, ", ", shape.height,
        ", ", shape.width, "], got ", real.scalar_type(), " ", real.sizes());
    const int64_t batch = real.size(0);
    SetBatch(batch);
    const torch::Tensor noise =
        torch::randn({batch, options_.latent_dim}, random_);  // [B, Z]
    fake_ = generator_->forward(noise);

    // One pass over both halves: the discriminator treats each image by itself.
    const torch::Tensor images = torch::cat({real, fake_.detach()});
    const torch::Tensor loss = torch::binary_cross_entropy_with_logits(
        discriminator_->Logits(images), targets_);
    loss.backward();
    discriminator_adam_.step();
    discriminator_loss_.add_(loss.detach());
  }

  void GeneratorStep() override {
    TORCH_CHECK(fake_.defined(),
                "a GeneratorStep must follow a DiscriminatorStep");
    const FreezeParameters freeze(discriminator_->parameters());
    const torch::Tensor loss = torch::binary_cross_entropy_with_logits(
        discriminator_->Logits(fake_), ones_);
    loss.backward();
    generator_adam_.step();
    generator_loss_.add_(loss.detach());
    ++steps_;
    fake_.reset();
  }

  Losses MeanLosses() const override {
    if (steps_ == 0) return {};
    const double steps = static_cast<double>(steps_);
    return {.generator = generator_loss_.item<double>() / steps,
            .discriminator = discriminator_loss_.item<double>() / steps,
            .steps = steps_};
  }

  void ResetLosses() override {
    generator_loss_ = torch::zeros({}, torch::kDouble);
    discriminator_loss_ = torch::zeros({}, torch::kDouble);
    steps_ = 0;
  }

  NamedTensors NetworkWeights(GanNetwork network) const override {
    const torch::nn::Module& module = Module(network);
    auto parameters = module.named_parameters();
    auto buffers = module.named_buffers();
    NamedTensors weights;
    for (const TensorSpec& spec : Specs(network)) {
      const auto& tensors = spec.is_buffer ? buffers : parameters;
      weights.emplace_back(spec.name, tensors[spec.name].detach());
    }
    return weights;
  }

  absl::Status SetWeights(const NamedTensors& weights) override {
    std::vector<TensorSpec> specs;
    for (const GanNetwork network : kGanNetworks) {
      for (TensorSpec& spec : Specs(network)) {
        spec.name = absl::StrCat(GanNetworkName(network), ".", spec.name);
        specs.push_back(std::move(spec));
      }
    }
    MR_RETURN_IF_ERROR(CheckTensors(specs, weights, "weights for the GAN"));
    NamedTensors own = Weights();
    for (size_t i = 0; i < own.size(); ++i) {
      own[i].second.copy_(weights[i].second);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<train::CheckpointFiles> SaveState() override {
    if (fake_.defined()) {
      return absl::FailedPreconditionError(
          "the GAN is in the middle of a training step; save it between two");
    }
    return train::SaveTraining(Parts());
  }

  absl::Status LoadState(const train::CheckpointFiles& files) override {
    fake_.reset();
    ResetLosses();
    return train::LoadTraining(files, Parts()).status();
  }

  const GanOptions& options() const override { return options_; }

 private:
  train::TrainingParts Parts() {
    return {.models = {{"generator", generator_.get()},
                       {"discriminator", discriminator_.get()}},
            .optimizers = {{"generator", &generator_adam_},
                           {"discriminator", &discriminator_adam_}},
            .generators = {{"noise", random_}}};
  }

  const torch::nn::Module& Module(GanNetwork network) const {
    if (network == GanNetwork::kGenerator) return *generator_;
    return *discriminator_;
  }

  std::vector<TensorSpec> Specs(GanNetwork network) const {
    return GanTensors(network, options_.latent_dim, options_.shape);
  }

  // Makes the targets for batches of this size.
  void SetBatch(int64_t batch) {
    if (ones_.defined() && ones_.size(0) == batch) return;
    ones_ = torch::ones({batch, 1});
    targets_ =
        torch::cat({torch::full({batch, 1}, 1 - options_.label_smoothing),
                    torch::zeros({batch, 1})});
  }

  const GanOptions options_;
  at::Generator random_;
  at::Generator weights_random_;
  Generator generator_;
  Discriminator discriminator_;
  FusedAdam generator_adam_;
  FusedAdam discriminator_adam_;

  torch::Tensor ones_;     // [B, 1]
  torch::Tensor targets_;  // [2B, 1]: of the real and the generated images.
  torch::Tensor fake_;  // [B, C, H, W] between the two steps, else undefined.
  torch::Tensor generator_loss_;      // Sum over steps_, scalar.
  torch::Tensor discriminator_loss_;  // Likewise.
  int64_t steps_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gan>> Gan::Create(const GanOptions& options) {
  MR_RETURN_IF_ERROR(ValidateGanSizes(options.latent_dim, options.shape));
  if (!std::isfinite(options.lr) || options.lr <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lr is ", options.lr, "; expected a finite number above 0"));
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("label_smoothing is ", options.label_smoothing,
                     "; expected 0 or more and less than 1"));
  }
  return std::make_unique<TorchGan>(options);
}

NamedTensors Gan::Weights() const {
  NamedTensors all;
  for (const GanNetwork network : kGanNetworks) {
    NamedTensors part = WithNetworkPrefix(network, NetworkWeights(network));
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace miniray::ml
