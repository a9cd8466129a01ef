#include "ml/gan/gan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/strings/str_cat.h"
#include "ml/gan/fused_adam.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/networks.h"
#include "runtime/base/status_macros.h"
#include "torch/nn.h"
#include "train/device.h"
#include "train/train_loop.h"
#include "train/training_state.h"

namespace miniray::ml {
namespace {

at::Generator MakeRandom(uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
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

// What a checkpoint has of each network's TrainLoop.
constexpr char kGeneratorLoop[] = "generator.loop";
constexpr char kDiscriminatorLoop[] = "discriminator.loop";

absl::Status RestoreLoop(const train::CheckpointFiles& files,
                         const std::string& name, train::TrainLoop* loop) {
  const auto file = files.find(name);
  if (file == files.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint has no file ", name));
  }
  return Annotate(loop->RestoreState(file->second), name);
}

std::unique_ptr<torch::optim::Adam> MakeAdam(
    std::vector<torch::Tensor> parameters, double lr, c10::Device device) {
  const auto options = torch::optim::AdamOptions(lr).betas({0.5, 0.999});
  if (device.is_cpu()) {
    return std::make_unique<FusedAdam>(std::move(parameters), options);
  }
  return std::make_unique<torch::optim::Adam>(std::move(parameters), options);
}

class TorchGan final : public Gan {
 public:
  TorchGan(const GanOptions& options, c10::Device device)
      : options_(options),
        device_(device),
        random_(MakeRandom(options.noise_seed)),
        weights_random_(MakeRandom(options.weights_seed)),
        generator_(options.latent_dim, options.shape, weights_random_),
        discriminator_(options.shape, weights_random_, random_) {
    generator_->to(device_);
    discriminator_->to(device_);
    generator_adam_ = MakeAdam(generator_->parameters(), options.lr, device_);
    discriminator_adam_ =
        MakeAdam(discriminator_->parameters(), options.lr, device_);
  }

  absl::Status MakeLoops() {
    MR_ASSIGN_OR_RETURN(generator_loop_, train::TrainLoop::Create(
                                             *generator_adam_, options_.loop));
    MR_ASSIGN_OR_RETURN(
        discriminator_loop_,
        train::TrainLoop::Create(*discriminator_adam_, options_.loop));
    return absl::OkStatus();
  }

  void BeginEpoch(int epoch, int64_t images) override {
    fake_.reset();
    generator_loop_->BeginEpoch(epoch, images);
    discriminator_loop_->BeginEpoch(epoch, images);
  }

  absl::Status DiscriminatorStep(const at::Tensor& real) override {
    const ImageShape& shape = options_.shape;
    TORCH_CHECK(
        real.dim() == 4 && real.size(0) >= 2 &&
            real.size(1) == shape.channels && real.size(2) == shape.height &&
            real.size(3) == shape.width && real.scalar_type() == at::kFloat,
        "expected float images [B >= 2, ", shape.channels, ", ", shape.height,
        ", ", shape.width, "], got ", real.scalar_type(), " ", real.sizes());
    const int64_t batch = real.size(0);
    return Annotate(
        discriminator_loop_
            ->Step(batch,
                   [&] {
                     const torch::Tensor noise =
                         torch::randn({batch, options_.latent_dim}, random_)
                             .to(device_);  // [B, Z]
                     fake_ = generator_->forward(noise);
                     // One pass over both halves: the discriminator treats each
                     // image by itself.
                     const torch::Tensor images =
                         torch::cat({real.to(device_), fake_.detach()});
                     return DiscriminatorLoss(options_.loss, Logits(images),
                                              options_.label_smoothing);
                   })
            .status(),
        "discriminator");
  }

  absl::Status GeneratorStep() override {
    TORCH_CHECK(fake_.defined(),
                "a GeneratorStep must follow a DiscriminatorStep");
    const FreezeParameters freeze(discriminator_->parameters());
    const absl::Status status =
        generator_loop_
            ->Step(fake_.size(0),
                   [&] { return GeneratorLoss(options_.loss, Logits(fake_)); })
            .status();
    fake_.reset();
    return Annotate(status, "generator");
  }

  absl::StatusOr<train::Metrics> EndEpoch() override {
    train::Metrics metrics;
    for (const auto& [name, prefix, loop] :
         {std::tuple("discriminator", "d_", discriminator_loop_.get()),
          std::tuple("generator", "g_", generator_loop_.get())}) {
      absl::StatusOr<train::Metrics> own = loop->EndEpoch();
      if (!own.ok()) return Annotate(own.status(), name);
      for (const char* metric : {"loss", "gradient_norm"}) {
        const auto value = own->find(metric);
        if (value != own->end()) {
          metrics[absl::StrCat(prefix, metric)] = value->second;
        }
      }
      for (const char* metric : {"lr", "samples"}) {
        metrics[metric] = own->at(metric);
      }
      const auto skipped = own->find("skipped_steps");
      if (skipped != own->end()) metrics[skipped->first] += skipped->second;
    }
    return metrics;
  }

  train::Progress Now() const override {
    // The second half of a step.
    train::Progress progress = generator_loop_->Now();
    train::Metrics metrics;
    for (const auto& [name, own] :
         {std::pair("d_loss", discriminator_loop_->Now().metrics),
          std::pair("g_loss", progress.metrics)}) {
      const auto loss = own.find("loss");
      if (loss != own.end()) metrics[name] = loss->second;
    }
    progress.metrics = std::move(metrics);
    return progress;
  }

  NamedTensors NetworkWeights(GanNetwork network) const override {
    const std::vector<at::Tensor> tensors = Tensors(network);
    const std::vector<TensorSpec> specs = Specs(network);
    NamedTensors weights;
    for (size_t i = 0; i < specs.size(); ++i) {
      weights.emplace_back(specs[i].name, tensors[i].cpu());
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
    size_t i = 0;
    for (const GanNetwork network : kGanNetworks) {
      for (at::Tensor& own : Tensors(network)) own.copy_(weights[i++].second);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<train::CheckpointFiles> SaveState() override {
    if (fake_.defined()) {
      return absl::FailedPreconditionError(
          "the GAN is in the middle of a training step; save it between two");
    }
    MR_ASSIGN_OR_RETURN(train::CheckpointFiles files,
                        train::SaveTraining(Parts()));
    MR_ASSIGN_OR_RETURN(files[kGeneratorLoop], generator_loop_->SaveState());
    MR_ASSIGN_OR_RETURN(files[kDiscriminatorLoop],
                        discriminator_loop_->SaveState());
    return files;
  }

  absl::Status LoadState(const train::CheckpointFiles& files) override {
    fake_.reset();
    MR_RETURN_IF_ERROR(train::LoadTraining(files, Parts()).status());
    MR_RETURN_IF_ERROR(
        RestoreLoop(files, kGeneratorLoop, generator_loop_.get()));
    return RestoreLoop(files, kDiscriminatorLoop, discriminator_loop_.get());
  }

  const GanOptions& options() const override { return options_; }

 private:
  train::TrainingParts Parts() {
    return {.models = {{"generator", generator_.get()},
                       {"discriminator", discriminator_.get()}},
            .optimizers = {{"generator", generator_adam_.get()},
                           {"discriminator", discriminator_adam_.get()}},
            .generators = {{"noise", random_}}};
  }

  const torch::nn::Module& Module(GanNetwork network) const {
    if (network == GanNetwork::kGenerator) return *generator_;
    return *discriminator_;
  }

  // The network's own, in the order of Specs.
  std::vector<at::Tensor> Tensors(GanNetwork network) const {
    const torch::nn::Module& module = Module(network);
    const auto parameters = module.named_parameters();
    const auto buffers = module.named_buffers();
    std::vector<at::Tensor> tensors;
    for (const TensorSpec& spec : Specs(network)) {
      tensors.push_back(
          (spec.is_buffer ? buffers : parameters)[spec.name].detach());
    }
    return tensors;
  }

  // What the discriminator says, in float32 also under autocast.
  torch::Tensor Logits(const torch::Tensor& images) {
    return discriminator_->Logits(images).to(torch::kFloat);
  }

  std::vector<TensorSpec> Specs(GanNetwork network) const {
    return GanTensors(network, options_.latent_dim, options_.shape);
  }

  const GanOptions options_;
  const c10::Device device_;
  at::Generator random_;
  at::Generator weights_random_;
  Generator generator_;
  Discriminator discriminator_;
  std::unique_ptr<torch::optim::Adam> generator_adam_;
  std::unique_ptr<torch::optim::Adam> discriminator_adam_;
  std::unique_ptr<train::TrainLoop> generator_loop_;
  std::unique_ptr<train::TrainLoop> discriminator_loop_;

  torch::Tensor fake_;  // [B, C, H, W] between the two steps, else undefined.
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
  if (options.loss == GanLoss::kHinge && options.label_smoothing > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "label_smoothing is ", options.label_smoothing,
        " with the hinge loss, which has no targets to smooth; expected 0"));
  }
  MR_ASSIGN_OR_RETURN(const c10::Device device,
                      train::ChooseDevice(options.device));
  auto gan = std::make_unique<TorchGan>(options, device);
  MR_RETURN_IF_ERROR(gan->MakeLoops());
  return gan;
}

absl::Status Gan::TrainStep(const at::Tensor& real) {
  MR_RETURN_IF_ERROR(DiscriminatorStep(real));
  return GeneratorStep();
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
