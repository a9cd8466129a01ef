#include "ml/gan/gan.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ml/gan/fused_adam.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/networks.h"
#include "ps/option_map.h"
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

// Gives a module's buffers back, at its end, what they held; not after Forget.
class KeepBuffers {
 public:
  explicit KeepBuffers(std::vector<torch::Tensor> buffers)
      : buffers_(std::move(buffers)) {
    for (const torch::Tensor& buffer : buffers_) {
      before_.push_back(buffer.clone());
    }
  }
  ~KeepBuffers() {
    try {
      for (size_t i = 0; i < buffers_.size(); ++i) {
        // Past autograd's versions: a backward pass that is still to come has
        // saved BatchNorm's statistics and wants them unchanged, though in
        // training mode it makes no use of them.
        buffers_[i].variable_data().copy_(before_[i]);
      }
    } catch (const std::exception&) {
      // The device is lost; the error of the step says so.
    }
  }
  KeepBuffers(const KeepBuffers&) = delete;
  KeepBuffers& operator=(const KeepBuffers&) = delete;

  void Forget() {
    buffers_.clear();
    before_.clear();
  }

 private:
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> before_;
};

// What a checkpoint calls the generator's average, and its file.
constexpr char kEma[] = "generator_ema";
constexpr char kEmaFile[] = "generator_ema.pt";

// What a checkpoint's extras call GanOptions::sync_moments.
constexpr char kSyncMoments[] = "sync_moments";

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

// As MomentSpecs has them; `parameters` are all of `adam`.
std::vector<at::Tensor> MomentsOf(
    torch::optim::Adam& adam, const std::vector<torch::Tensor>& parameters) {
  std::vector<at::Tensor> moments = {
      at::full({1}, AdamStateOf(adam, parameters.at(0)).step(), at::kLong)};
  for (const torch::Tensor& p : parameters) {
    moments.push_back(AdamStateOf(adam, p).exp_avg());
  }
  for (const torch::Tensor& p : parameters) {
    moments.push_back(AdamStateOf(adam, p).exp_avg_sq());
  }
  return moments;
}

// The inverse. moments: the first 1 + 2 * parameters.size() of them.
void SetMoments(absl::Span<const NamedTensors::value_type> moments,
                const std::vector<torch::Tensor>& parameters,
                torch::optim::Adam& adam) {
  const size_t n = parameters.size();
  const auto steps = moments[0].second.item<int64_t>();
  for (size_t i = 0; i < n; ++i) {
    torch::optim::AdamParamState& state = AdamStateOf(adam, parameters[i]);
    state.step(steps);
    state.exp_avg().copy_(moments[1 + i].second);
    // A strategy that adds noise may have made it negative, and Adam takes its
    // root.
    state.exp_avg_sq().copy_(moments[1 + n + i].second.clamp_min(0));
  }
}

void CopyBuffers(const torch::nn::Module& from, torch::nn::Module& to) {
  const std::vector<torch::Tensor> sources = from.buffers();
  std::vector<torch::Tensor> targets = to.buffers();
  for (size_t i = 0; i < targets.size(); ++i) targets[i].copy_(sources[i]);
}

// Parameters and buffers.
void CopyTensors(const torch::nn::Module& from, torch::nn::Module& to) {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> sources = from.parameters();
  std::vector<torch::Tensor> targets = to.parameters();
  for (size_t i = 0; i < targets.size(); ++i) targets[i].copy_(sources[i]);
  CopyBuffers(from, to);
}

class TorchGan final : public Gan {
 public:
  TorchGan(const GanOptions& options, c10::Device device)
      : options_(options),
        device_(device),
        random_(MakeRandom(options.noise_seed)),
        weights_random_(MakeRandom(options.weights_seed)),
        generator_(options.sizes(), weights_random_),
        discriminator_(options.sizes(), weights_random_, random_) {
    if (options.ema_decay > 0) {
      // Its own weights are never seen.
      ema_ = Generator(options.sizes(), MakeRandom(0));
      CopyTensors(*generator_, *ema_);
      ema_->to(device_);
      for (torch::Tensor& p : ema_->parameters()) p.set_requires_grad(false);
    }
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
    DropImages();
    generator_loop_->BeginEpoch(epoch, images);
    discriminator_loop_->BeginEpoch(epoch, images);
  }

  absl::Status DiscriminatorStep(const at::Tensor& real,
                                 const at::Tensor& labels) override {
    const ImageShape& shape = options_.shape;
    TORCH_CHECK(
        real.dim() == 4 && real.size(0) >= 2 &&
            real.size(1) == shape.channels && real.size(2) == shape.height &&
            real.size(3) == shape.width && real.scalar_type() == at::kFloat,
        "expected float images [B >= 2, ", shape.channels, ", ", shape.height,
        ", ", shape.width, "], got ", real.scalar_type(), " ", real.sizes());
    const int64_t batch = real.size(0);
    TORCH_CHECK(labels.defined() == (options_.classes > 0),
                options_.classes > 0 ? "a GAN with classes needs labels"
                                     : "a GAN without classes takes no labels");
    TORCH_CHECK(
        !labels.defined() || (labels.dim() == 1 && labels.size(0) == batch &&
                              labels.scalar_type() == at::kLong),
        "expected int64 labels [", batch, "]");
    // A pass that overflows leaves NaN in running statistics, where it would
    // stay for good though no step is taken. Where images are not finite, the
    // loss is not, so that it answers for both networks.
    KeepBuffers keep_generator(generator_->buffers());
    KeepBuffers keep_discriminator(discriminator_->buffers());
    const absl::StatusOr<train::StepResult> step =
        discriminator_loop_->Step(batch, [&] {
          const torch::Tensor noise =
              torch::randn({batch, options_.latent_dim}, random_)
                  .to(device_);  // [B, Z]
          labels_ = labels.defined() ? labels.to(device_) : labels;
          fake_ = generator_->forward(noise, labels_);
          return DiscriminatorLoss(
              options_.loss, LogitsOfBoth(real.to(device_), fake_.detach()),
              options_.label_smoothing);
        });
    if (step.ok() && std::isfinite(step->loss)) {
      keep_generator.Forget();
      keep_discriminator.Forget();
    }
    return Annotate(step.status(), "discriminator");
  }

  absl::Status GeneratorStep() override {
    TORCH_CHECK(fake_.defined(),
                "a GeneratorStep must follow a DiscriminatorStep");
    const FreezeParameters freeze(discriminator_->parameters());
    const KeepBuffers keep(discriminator_->buffers());
    const absl::Status status =
        generator_loop_
            ->Step(fake_.size(0),
                   [&] {
                     return GeneratorLoss(options_.loss,
                                          Logits(fake_, labels_));
                   })
            .status();
    DropImages();
    FollowGenerator();
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
    FollowGenerator();
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
    return network == GanNetwork::kGenerator
               ? WeightsOf(*generator_, network)
               : WeightsOf(*discriminator_, network);
  }

  NamedTensors EmaWeights() const override {
    if (ema_.is_empty()) return {};
    return WeightsOf(*ema_, GanNetwork::kGenerator);
  }

  NamedTensors Moments() const override {
    NamedTensors named;
    if (options_.sync_moments != SyncMoments::kAverage) return named;
    for (const GanNetwork network : kGanNetworks) {
      const std::vector<at::Tensor> moments =
          MomentsOf(AdamOf(network), AdamParameters(network));
      const std::vector<TensorSpec> specs =
          MomentSpecs(network, options_.sizes());
      for (size_t i = 0; i < specs.size(); ++i) {
        named.emplace_back(specs[i].name, moments[i].cpu());
      }
    }
    return named;
  }

  absl::Status SetWeights(const NamedTensors& weights) override {
    MR_RETURN_IF_ERROR(
        CheckTensors(GanWeightSpecs(options_), weights, "weights for the GAN"));
    std::vector<at::Tensor> all = Tensors(*generator_, GanNetwork::kGenerator);
    const auto append = [&all](const std::vector<at::Tensor>& tensors) {
      all.insert(all.end(), tensors.begin(), tensors.end());
    };
    append(Tensors(*discriminator_, GanNetwork::kDiscriminator));
    if (!ema_.is_empty()) append(Tensors(*ema_, GanNetwork::kGenerator));
    for (size_t i = 0; i < all.size(); ++i) all[i].copy_(weights[i].second);
    // Behind these.
    auto rest = absl::MakeConstSpan(weights).subspan(all.size());
    for (const GanNetwork network : kGanNetworks) {
      if (options_.sync_moments == SyncMoments::kReset) {
        AdamOf(network).state().clear();
      } else if (options_.sync_moments == SyncMoments::kAverage) {
        SetMoments(rest, AdamParameters(network), AdamOf(network));
        rest.remove_prefix(MomentSpecs(network, options_.sizes()).size());
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<train::CheckpointFiles> SaveState() override {
    if (fake_.defined()) {
      return absl::FailedPreconditionError(
          "the GAN is in the middle of a training step; save it between two");
    }
    MR_ASSIGN_OR_RETURN(
        train::CheckpointFiles files,
        train::SaveTraining(
            Parts(), {{kSyncMoments,
                       std::string(SyncMomentsName(options_.sync_moments))}}));
    MR_ASSIGN_OR_RETURN(files[kGeneratorLoop], generator_loop_->SaveState());
    MR_ASSIGN_OR_RETURN(files[kDiscriminatorLoop],
                        discriminator_loop_->SaveState());
    return files;
  }

  absl::Status LoadState(const train::CheckpointFiles& files) override {
    DropImages();
    if (files.contains(kEmaFile) != !ema_.is_empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the checkpoint is of a training ",
          ema_.is_empty() ? "with" : "without",
          " an average of the generator (", kEmaFile, "), and ema_decay is ",
          options_.ema_decay,
          ema_.is_empty() ? "; go on with the ema_decay (--ema-decay) that it "
                            "began with"
                          : "; go on with ema_decay 0 (no --ema-decay)"));
    }
    // Loading leaves alone what the checkpoint has no moments of.
    for (const GanNetwork network : kGanNetworks) {
      AdamOf(network).state().clear();
    }
    MR_ASSIGN_OR_RETURN(const ps::OptionMap extras,
                        train::LoadTraining(files, Parts()));
    MR_RETURN_IF_ERROR(CheckSyncMoments(extras));
    MR_RETURN_IF_ERROR(
        RestoreLoop(files, kGeneratorLoop, generator_loop_.get()));
    followed_steps_ = generator_loop_->steps();
    return RestoreLoop(files, kDiscriminatorLoop, discriminator_loop_.get());
  }

  const GanOptions& options() const override { return options_; }

 private:
  train::TrainingParts Parts() {
    train::TrainingParts parts = {
        .models = {{"generator", generator_.get()},
                   {"discriminator", discriminator_.get()}},
        .optimizers = {{"generator", generator_adam_.get()},
                       {"discriminator", discriminator_adam_.get()}},
        .generators = {{"noise", random_}}};
    if (!ema_.is_empty()) parts.models[kEma] = ema_.get();
    return parts;
  }

  torch::optim::Adam& AdamOf(GanNetwork network) const {
    return network == GanNetwork::kGenerator ? *generator_adam_
                                             : *discriminator_adam_;
  }

  // All that it steps, in the order of GanTensors.
  std::vector<at::Tensor> AdamParameters(GanNetwork network) const {
    const torch::nn::Module& module =
        network == GanNetwork::kGenerator
            ? static_cast<const torch::nn::Module&>(*generator_)
            : *discriminator_;
    const auto parameters = module.named_parameters();
    std::vector<at::Tensor> ordered;
    for (const TensorSpec& spec : GanTensors(network, options_.sizes())) {
      if (!spec.is_buffer) ordered.push_back(parameters[spec.name]);
    }
    return ordered;
  }

  // The parameter server of a checkpoint has the moments, or has none.
  absl::Status CheckSyncMoments(const ps::OptionMap& extras) const {
    MR_ASSIGN_OR_RETURN(
        const std::string saved,
        extras.GetString(kSyncMoments, SyncMomentsName(SyncMoments::kKeep)));
    const absl::string_view average = SyncMomentsName(SyncMoments::kAverage);
    const absl::string_view own = SyncMomentsName(options_.sync_moments);
    if ((saved == average) == (own == average)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint is of a training with sync_moments ", saved,
        ", and it is ", own, " now; go on with the one (--sync-moments=", saved,
        ") that it began with"));
  }

  // The module's own, in the order of GanTensors.
  std::vector<at::Tensor> Tensors(const torch::nn::Module& module,
                                  GanNetwork network) const {
    const auto parameters = module.named_parameters();
    const auto buffers = module.named_buffers();
    std::vector<at::Tensor> tensors;
    for (const TensorSpec& spec : GanTensors(network, options_.sizes())) {
      tensors.push_back(
          (spec.is_buffer ? buffers : parameters)[spec.name].detach());
    }
    return tensors;
  }

  NamedTensors WeightsOf(const torch::nn::Module& module,
                         GanNetwork network) const {
    const std::vector<at::Tensor> tensors = Tensors(module, network);
    const std::vector<TensorSpec> specs = GanTensors(network, options_.sizes());
    NamedTensors weights;
    for (size_t i = 0; i < specs.size(); ++i) {
      weights.emplace_back(specs[i].name, tensors[i].cpu());
    }
    return weights;
  }

  void DropImages() {
    fake_.reset();
    labels_.reset();
  }

  // What the discriminator says, in float32 also under autocast.
  torch::Tensor Logits(const torch::Tensor& images,
                       const torch::Tensor& labels) {
    return discriminator_->Logits(images, labels).to(torch::kFloat);
  }

  // The same of real images and, behind them, generated ones of the same
  // labels: [2B, 1].
  torch::Tensor LogitsOfBoth(const torch::Tensor& real,
                             const torch::Tensor& fake) {
    if (options_.architecture == GanArchitecture::kMlp) {
      // One pass: an mlp treats each image by itself.
      return Logits(
          torch::cat({real, fake}),
          labels_.defined() ? torch::cat({labels_, labels_}) : labels_);
    }
    // BatchNorm looks at a batch as a whole, which is to be of one kind.
    // Source: Chintala et al., "How to train a GAN?", 2016, point 4.
    return torch::cat({Logits(real, labels_), Logits(fake, labels_)});
  }

  // Takes the step that the generator has taken since the last call, if it has,
  // into its average.
  void FollowGenerator() {
    if (ema_.is_empty() || generator_loop_->steps() == followed_steps_) return;
    followed_steps_ = generator_loop_->steps();
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> averages = ema_->parameters();
    const std::vector<torch::Tensor> weights = generator_->parameters();
    for (size_t i = 0; i < averages.size(); ++i) {
      averages[i].lerp_(weights[i], 1 - options_.ema_decay);
    }
    CopyBuffers(*generator_, *ema_);
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

  Generator ema_ = nullptr;     // Null without ema_decay.
  int64_t followed_steps_ = 0;  // Of the generator, that ema_ has taken in.

  // Between the two steps; else undefined.
  torch::Tensor fake_;    // [B, C, H, W]
  torch::Tensor labels_;  // [B] with classes.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gan>> Gan::Create(const GanOptions& options) {
  MR_RETURN_IF_ERROR(ValidateGanSizes(options.sizes()));
  if (!std::isfinite(options.lr) || options.lr <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lr is ", options.lr, "; expected a finite number above 0"));
  }
  // From the wire, it may be any number.
  if (options.loss != GanLoss::kNonSaturating &&
      options.loss != GanLoss::kHinge) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the loss is ", static_cast<int>(options.loss),
        ", which there is not; expected that of non_saturating or hinge"));
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
  if (!(options.ema_decay >= 0 && options.ema_decay < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ema_decay is ", options.ema_decay,
                     "; expected 0 for none, or more and less than 1"));
  }
  if (SyncMomentsName(options.sync_moments).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sync_moments is ", static_cast<int>(options.sync_moments),
        ", which there is not; expected that of keep, average or reset"));
  }
  MR_ASSIGN_OR_RETURN(const c10::Device device,
                      train::ChooseDevice(options.device));
  auto gan = std::make_unique<TorchGan>(options, device);
  MR_RETURN_IF_ERROR(gan->MakeLoops());
  return gan;
}

absl::Status Gan::TrainStep(const at::Tensor& real, const at::Tensor& labels) {
  MR_RETURN_IF_ERROR(DiscriminatorStep(real, labels));
  return GeneratorStep();
}

NamedTensors Gan::Weights() const {
  NamedTensors all;
  for (const GanNetwork network : kGanNetworks) {
    NamedTensors part = WithNetworkPrefix(network, NetworkWeights(network));
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  for (NamedTensors part : {WithEmaPrefix(EmaWeights()), Moments()}) {
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  return all;
}

std::vector<TensorSpec> GanWeightSpecs(const GanOptions& options) {
  return GanWeightSpecs(options.sizes(), options.ema_decay > 0,
                        options.sync_moments == SyncMoments::kAverage);
}

}  // namespace miniray::ml
