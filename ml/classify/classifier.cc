#include "ml/classify/classifier.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ml/classify/networks.h"
#include "ml/data/describe_tensor.h"
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

absl::Status CheckAtLeastZero(double value, const char* name) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; expected 0 or more"));
}

}  // namespace

struct Classifier::Model {
  Model(const ClassifierOptions& options, c10::Device device,
        std::shared_ptr<ClassifierNetwork> network)
      : device(device),
        image_shape({options.channels, options.height, options.width}),
        network(std::move(network)),
        proximal(options.fedprox_mu) {
    this->network->to(device);
    if (device.is_cpu()) train::ShareParameters(*this->network);
    const std::vector<at::Tensor> parameters = this->network->parameters();
    if (options.optimizer == "adamw") {
      optimizer = std::make_unique<torch::optim::AdamW>(
          parameters, torch::optim::AdamWOptions(options.lr));
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(
          parameters, torch::optim::SGDOptions(options.lr)
                          .momentum(options.momentum)
                          .weight_decay(options.weight_decay));
    }
    uses_proximal = options.fedprox_mu > 0;
  }

  absl::Status MakeLoop(const train::TrainLoopOptions& options) {
    MR_ASSIGN_OR_RETURN(loop, train::TrainLoop::Create(*optimizer, options));
    if (uses_proximal) {
      loop->set_adjust_gradients(
          [this] { return proximal.AddGradient(*network); });
    }
    return absl::OkStatus();
  }

  // images: uint8 [B, C, H, W]. Returns logits, [B, classes].
  torch::Tensor Forward(const torch::Tensor& images) {
    return network->Forward(ToUnitRange(images).to(device));
  }
  torch::Tensor Loss(const ImageBatch& batch) {
    return torch::nn::functional::cross_entropy(
        Forward(batch.images).to(torch::kFloat), batch.labels.to(device));
  }

  train::TrainingParts Parts() {
    return {.models = {{"model", network.get()}},
            .optimizers = {{"optimizer", optimizer.get()}}};
  }

  const c10::Device device;
  const std::vector<int64_t> image_shape;  // C, H, W.

  const std::shared_ptr<ClassifierNetwork> network;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::unique_ptr<train::TrainLoop> loop;
  train::ProximalTerm proximal;
  bool uses_proximal = false;
};

absl::StatusOr<std::unique_ptr<Classifier>> Classifier::Create(
    const ClassifierOptions& options) {
  if (options.optimizer != "sgd" && options.optimizer != "adamw") {
    return absl::InvalidArgumentError(absl::StrCat(
        "the optimizer is '", options.optimizer, "'; expected sgd or adamw"));
  }
  MR_RETURN_IF_ERROR(CheckAtLeastZero(options.fedprox_mu, "fedprox_mu"));
  MR_RETURN_IF_ERROR(CheckAtLeastZero(options.momentum, "momentum"));
  MR_RETURN_IF_ERROR(CheckAtLeastZero(options.weight_decay, "weight_decay"));
  if (!std::isfinite(options.lr) || options.lr <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lr is ", options.lr, "; expected a finite number above 0"));
  }
  MR_ASSIGN_OR_RETURN(const c10::Device device,
                      train::ChooseDevice(options.device));
  MR_ASSIGN_OR_RETURN(std::shared_ptr<ClassifierNetwork> network,
                      MakeClassifierNetwork(options.network,
                                            {.channels = options.channels,
                                             .height = options.height,
                                             .width = options.width,
                                             .classes = options.classes,
                                             .hidden = options.hidden},
                                            options.seed));
  auto model = std::make_unique<Model>(options, device, std::move(network));
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
  model_->network->zero_grad();
  torch::Tensor loss = model_->Loss(batch);
  loss.backward();
  return loss.item<double>();
}

ReadOnly<NamedTensors> Classifier::Gradients() const {
  return train::Gradients(*model_->network);
}

Evaluation Classifier::Evaluate(const ImageDataset& dataset) const {
  const torch::NoGradGuard no_grad;
  model_->network->eval();
  const absl::Cleanup back = [this] { model_->network->train(); };
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

absl::StatusOr<at::Tensor> Classifier::Features(
    const at::Tensor& images) const {
  const at::IntArrayRef shape = model_->image_shape;
  if (images.scalar_type() != at::kByte || images.dim() != 4 ||
      images.sizes().slice(1) != shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images are ", DescribeTensor(images),
        "; the classifier takes uint8 [B, ", absl::StrJoin(shape, ", "), "]"));
  }
  const torch::NoGradGuard no_grad;
  model_->network->eval();
  const absl::Cleanup back = [this] { model_->network->train(); };
  return model_->network->Features(ToUnitRange(images).to(model_->device))
      .to(at::kCPU, at::kFloat);
}

NamedTensors Classifier::Weights() const {
  return train::StateDict(*model_->network);
}

std::vector<std::string> Classifier::BufferNames() const {
  return train::BufferNames(*model_->network);
}

ReadOnly<NamedTensors> Classifier::LendWeights() const {
  return train::LendStateDict(*model_->network);
}

absl::Status Classifier::SetWeights(const NamedTensors& weights) {
  MR_RETURN_IF_ERROR(train::LoadStateDict(*model_->network, weights));
  if (model_->uses_proximal) model_->proximal.SetCenter(*model_->network);
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
  if (model_->uses_proximal) model_->proximal.SetCenter(*model_->network);
  return model_->loop->RestoreState(loop->second);
}

}  // namespace miniray::ml
