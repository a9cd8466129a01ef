#include "ml/classify/classifier.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "torch/torch.h"
#include "train/device.h"
#include "train/fedprox.h"
#include "train/gradients.h"
#include "train/state_dict.h"
#include "train/train_loop.h"
#include "train/training_state.h"

namespace miniray::ml {
namespace {

// Of an evaluation: bounds its memory.
constexpr int64_t kBlock = 2000;

// What a checkpoint has of the TrainLoop.
constexpr char kLoop[] = "model.loop";

torch::nn::Linear MakeLinear(int64_t inputs, int64_t outputs,
                             at::Generator& random) {
  torch::nn::Linear linear(inputs, outputs);
  const torch::NoGradGuard no_grad;
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
  linear->weight.uniform_(-bound, bound, random);
  linear->bias.uniform_(-bound, bound, random);
  return linear;
}

}  // namespace

struct Classifier::Model : torch::nn::Module {
  Model(const ClassifierOptions& options, c10::Device device)
      : device(device), proximal(options.fedprox_mu) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
    hidden = register_module(
        "hidden", MakeLinear(options.inputs, options.hidden, random));
    output = register_module(
        "output", MakeLinear(options.hidden, options.classes, random));
    to(device);
    if (device.is_cpu()) train::ShareParameters(*this);
    if (options.optimizer == "adamw") {
      optimizer = std::make_unique<torch::optim::AdamW>(
          parameters(), torch::optim::AdamWOptions(options.lr));
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(parameters(), options.lr);
    }
    uses_proximal = options.fedprox_mu > 0;
  }

  absl::Status MakeLoop(const train::TrainLoopOptions& options) {
    MR_ASSIGN_OR_RETURN(loop, train::TrainLoop::Create(*optimizer, options));
    if (uses_proximal) {
      loop->set_adjust_gradients(
          [this] { return proximal.AddGradient(*this); });
    }
    return absl::OkStatus();
  }

  // images: uint8 [B, C, H, W]. Returns logits, [B, classes].
  torch::Tensor Forward(const torch::Tensor& images) {
    return output(
        torch::relu(hidden(ToUnitRange(images).to(device).flatten(1))));
  }
  torch::Tensor Loss(const ImageBatch& batch) {
    return torch::nn::functional::cross_entropy(
        Forward(batch.images).to(torch::kFloat), batch.labels.to(device));
  }

  train::TrainingParts Parts() {
    return {.models = {{"model", this}},
            .optimizers = {{"optimizer", optimizer.get()}}};
  }

  const c10::Device device;

  torch::nn::Linear hidden = nullptr;
  torch::nn::Linear output = nullptr;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::unique_ptr<train::TrainLoop> loop;
  train::ProximalTerm proximal;
  bool uses_proximal = false;
};

absl::StatusOr<std::unique_ptr<Classifier>> Classifier::Create(
    const ClassifierOptions& options) {
  if (options.inputs < 1 || options.hidden < 1 || options.classes < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a classifier needs at least one input, hidden unit and class; got ",
        options.inputs, ", ", options.hidden, " and ", options.classes));
  }
  if (options.optimizer != "sgd" && options.optimizer != "adamw") {
    return absl::InvalidArgumentError(absl::StrCat(
        "the optimizer is '", options.optimizer, "'; expected sgd or adamw"));
  }
  if (!std::isfinite(options.fedprox_mu) || options.fedprox_mu < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fedprox_mu is ", options.fedprox_mu, "; expected 0 or more"));
  }
  if (!std::isfinite(options.lr) || options.lr <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lr is ", options.lr, "; expected a finite number above 0"));
  }
  MR_ASSIGN_OR_RETURN(const c10::Device device,
                      train::ChooseDevice(options.device));
  auto model = std::make_unique<Model>(options, device);
  MR_RETURN_IF_ERROR(model->MakeLoop(options.loop));
  return absl::WrapUnique(new Classifier(std::move(model)));
}

Classifier::Classifier(std::unique_ptr<Model> model)
    : model_(std::move(model)) {}
Classifier::~Classifier() = default;

void Classifier::BeginEpoch(int epoch, int64_t images) {
  model_->loop->BeginEpoch(epoch, images);
}

absl::StatusOr<double> Classifier::TrainStep(const ImageBatch& batch) {
  MR_ASSIGN_OR_RETURN(const train::StepResult step,
                      model_->loop->Step(batch.images.size(0),
                                         [&] { return model_->Loss(batch); }));
  return step.loss;
}

absl::StatusOr<train::Metrics> Classifier::EndEpoch() {
  return model_->loop->EndEpoch();
}

train::Progress Classifier::Now() const { return model_->loop->Now(); }

void Classifier::set_steps(int64_t steps) { model_->loop->set_steps(steps); }

double Classifier::ComputeGradients(const ImageBatch& batch) {
  model_->zero_grad();
  torch::Tensor loss = model_->Loss(batch);
  loss.backward();
  return loss.item<double>();
}

ReadOnly<NamedTensors> Classifier::Gradients() const {
  return train::Gradients(*model_);
}

Evaluation Classifier::Evaluate(const ImageDataset& dataset) const {
  const torch::NoGradGuard no_grad;
  Evaluation sums;
  for (int64_t begin = 0; begin < dataset.size(); begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, dataset.size());
    const torch::Tensor logits =
        model_->Forward(dataset.images.slice(0, begin, end));
    const torch::Tensor labels =
        dataset.labels.slice(0, begin, end).to(model_->device);
    sums.accuracy += logits.argmax(1).eq(labels).sum().item<double>();
    sums.loss += torch::nn::functional::cross_entropy(
                     logits, labels,
                     torch::nn::functional::CrossEntropyFuncOptions().reduction(
                         torch::kSum))
                     .item<double>();
  }
  const auto size = static_cast<double>(dataset.size());
  return {.accuracy = sums.accuracy / size, .loss = sums.loss / size};
}

NamedTensors Classifier::Weights() const { return train::StateDict(*model_); }

ReadOnly<NamedTensors> Classifier::LendWeights() const {
  return train::LendStateDict(*model_);
}

absl::Status Classifier::SetWeights(const NamedTensors& weights) {
  MR_RETURN_IF_ERROR(train::LoadStateDict(*model_, weights));
  if (model_->uses_proximal) model_->proximal.SetCenter(*model_);
  return absl::OkStatus();
}

absl::StatusOr<train::CheckpointFiles> Classifier::SaveState() {
  MR_ASSIGN_OR_RETURN(train::CheckpointFiles files,
                      train::SaveTraining(model_->Parts()));
  MR_ASSIGN_OR_RETURN(files[kLoop], model_->loop->SaveState());
  return files;
}

absl::Status Classifier::LoadState(const train::CheckpointFiles& files) {
  const auto loop = files.find(kLoop);
  if (loop == files.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint has no file ", kLoop));
  }
  MR_RETURN_IF_ERROR(train::LoadTraining(files, model_->Parts()).status());
  if (model_->uses_proximal) model_->proximal.SetCenter(*model_);
  return model_->loop->RestoreState(loop->second);
}

}  // namespace miniray::ml
