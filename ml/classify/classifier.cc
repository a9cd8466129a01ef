#include "ml/classify/classifier.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "torch/torch.h"
#include "train/fedprox.h"
#include "train/gradients.h"
#include "train/state_dict.h"

namespace miniray::ml {
namespace {

// Of an evaluation: bounds its memory.
constexpr int64_t kBlock = 2000;

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
  explicit Model(const ClassifierOptions& options)
      : proximal(options.fedprox_mu) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
    hidden = register_module(
        "hidden", MakeLinear(options.inputs, options.hidden, random));
    output = register_module(
        "output", MakeLinear(options.hidden, options.classes, random));
    train::ShareParameters(*this);
    // Each step says its learning rate.
    if (options.optimizer == "adamw") {
      optimizer = std::make_unique<torch::optim::AdamW>(parameters());
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(parameters(), /*lr=*/1);
    }
    uses_proximal = options.fedprox_mu > 0;
  }

  // images: uint8 [B, C, H, W]. Returns logits, [B, classes].
  torch::Tensor Forward(const torch::Tensor& images) {
    return output(torch::relu(hidden(ToUnitRange(images).flatten(1))));
  }

  torch::nn::Linear hidden = nullptr;
  torch::nn::Linear output = nullptr;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
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
  return absl::WrapUnique(new Classifier(std::make_unique<Model>(options)));
}

Classifier::Classifier(std::unique_ptr<Model> model)
    : model_(std::move(model)) {}
Classifier::~Classifier() = default;

absl::StatusOr<double> Classifier::TrainStep(const ImageBatch& batch,
                                             double lr) {
  const double loss = ComputeGradients(batch);
  if (model_->uses_proximal) {
    MR_RETURN_IF_ERROR(model_->proximal.AddGradient(*model_));
  }
  torch::optim::Optimizer& optimizer = *model_->optimizer;
  optimizer.param_groups()[0].options().set_lr(lr);
  optimizer.step();
  return loss;
}

double Classifier::ComputeGradients(const ImageBatch& batch) {
  model_->zero_grad();
  torch::Tensor loss = torch::nn::functional::cross_entropy(
      model_->Forward(batch.images), batch.labels);
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
    const torch::Tensor labels = dataset.labels.slice(0, begin, end);
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

}  // namespace miniray::ml
