#include "ml/regress/regressor.h"

#include <cmath>
#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "ml/models/linear.h"
#include "runtime/base/status_macros.h"
#include "torch/torch.h"
#include "train/device.h"
#include "train/state_dict.h"
#include "train/train_loop.h"
#include "train/training_state.h"

namespace miniray::ml {
namespace {

// What a checkpoint has of the TrainLoop.
constexpr char kLoop[] = "model.loop";

}  // namespace

struct Regressor::Model : torch::nn::Module {
  Model(const RegressorOptions& options, c10::Device device) : device(device) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
    hidden1 = register_module(
        "hidden1", MakeLinear(options.inputs, options.hidden, random));
    hidden2 = register_module(
        "hidden2", MakeLinear(options.hidden, options.hidden, random));
    output = register_module("output", MakeLinear(options.hidden, 1, random));
    to(device);
    if (device.is_cpu()) train::ShareParameters(*this);
    optimizer = std::make_unique<torch::optim::Adam>(
        parameters(), torch::optim::AdamOptions(options.lr));
  }

  absl::Status MakeLoop(const train::TrainLoopOptions& options) {
    MR_ASSIGN_OR_RETURN(loop, train::TrainLoop::Create(*optimizer, options));
    return absl::OkStatus();
  }

  // features: [B, F]. Returns [B].
  torch::Tensor Forward(const torch::Tensor& features) {
    torch::Tensor x = torch::relu(hidden1(features.to(device)));
    x = torch::relu(hidden2(x));
    return output(x).squeeze(1);
  }

  train::TrainingParts Parts() {
    return {.models = {{"model", this}},
            .optimizers = {{"optimizer", optimizer.get()}}};
  }

  const c10::Device device;

  torch::nn::Linear hidden1 = nullptr;
  torch::nn::Linear hidden2 = nullptr;
  torch::nn::Linear output = nullptr;
  std::unique_ptr<torch::optim::Adam> optimizer;
  std::unique_ptr<train::TrainLoop> loop;
};

absl::StatusOr<std::unique_ptr<Regressor>> Regressor::Create(
    const RegressorOptions& options) {
  if (options.inputs < 1 || options.hidden < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a regressor needs at least one input and hidden unit; got ",
        options.inputs, " and ", options.hidden));
  }
  if (!std::isfinite(options.lr) || options.lr <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lr is ", options.lr, "; expected a finite number above 0"));
  }
  MR_ASSIGN_OR_RETURN(const c10::Device device,
                      train::ChooseDevice(options.device));
  auto model = std::make_unique<Model>(options, device);
  MR_RETURN_IF_ERROR(model->MakeLoop(options.loop));
  return absl::WrapUnique(new Regressor(std::move(model)));
}

Regressor::Regressor(std::unique_ptr<Model> model) : model_(std::move(model)) {}
Regressor::~Regressor() = default;

void Regressor::BeginEpoch(int epoch, int64_t rows) {
  model_->loop->BeginEpoch(epoch, rows);
}

absl::StatusOr<double> Regressor::TrainStep(const at::Tensor& features,
                                            const at::Tensor& targets) {
  MR_ASSIGN_OR_RETURN(
      const train::StepResult step, model_->loop->Step(features.size(0), [&] {
        return torch::mse_loss(model_->Forward(features).to(torch::kFloat),
                               targets.to(model_->device));
      }));
  return step.loss;
}

absl::StatusOr<train::Metrics> Regressor::EndEpoch() {
  return model_->loop->EndEpoch();
}

train::Progress Regressor::Now() const { return model_->loop->Now(); }

at::Tensor Regressor::Predict(const at::Tensor& features) const {
  const torch::NoGradGuard no_grad;
  return model_->Forward(features).to(torch::kFloat).cpu();
}

RegressionErrors Regressor::Evaluate(const at::Tensor& features,
                                     const at::Tensor& targets) const {
  const torch::Tensor errors = (Predict(features) - targets).to(torch::kDouble);
  return {.squared = errors.square().mean().item<double>(),
          .absolute = errors.abs().mean().item<double>()};
}

NamedTensors Regressor::Weights() const { return train::StateDict(*model_); }

ReadOnly<NamedTensors> Regressor::LendWeights() const {
  return train::LendStateDict(*model_);
}

absl::Status Regressor::SetWeights(const NamedTensors& weights) {
  return train::LoadStateDict(*model_, weights);
}

absl::StatusOr<train::CheckpointFiles> Regressor::SaveState() {
  MR_ASSIGN_OR_RETURN(train::CheckpointFiles files,
                      train::SaveTraining(model_->Parts()));
  MR_ASSIGN_OR_RETURN(files[kLoop], model_->loop->SaveState());
  return files;
}

absl::Status Regressor::LoadState(const train::CheckpointFiles& files) {
  const auto loop = files.find(kLoop);
  if (loop == files.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint has no file ", kLoop));
  }
  MR_RETURN_IF_ERROR(train::LoadTraining(files, model_->Parts()).status());
  return model_->loop->RestoreState(loop->second);
}

}  // namespace miniray::ml
