#include "tools/bench/model_steps.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <sstream>
#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Parallel.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/randn.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ml/classify/classifier.h"
#include "ml/data/image_dataset.h"
#include "ml/gan/architecture.h"
#include "ml/gan/gan.h"
#include "ml/regress/regressor.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/child.h"

namespace miniray::bench {
namespace {

constexpr int64_t kNumBatches = 4;
constexpr uint64_t kDataSeed = 100;
constexpr int kWarmUp = 2;

class OurGan : public SteppedModel {
 public:
  OurGan(std::unique_ptr<ml::Gan> gan, int64_t batch_size)
      : gan_(std::move(gan)), batches_(batch_size) {
    gan_->BeginEpoch(0);
  }

  absl::Status Step() override {
    const ModelBatches::Batch& batch = batches_.Of(steps_++);
    return gan_->TrainStep(
        ml::ToUnitRange(batch.images),
        gan_->options().classes > 0 ? batch.labels : at::Tensor());
  }

  std::vector<at::Tensor> Parameters() const override {
    std::vector<at::Tensor> parameters;
    for (const ml::GanNetwork network : ml::kGanNetworks) {
      const NamedTensors weights = gan_->NetworkWeights(network);
      const std::vector<ml::TensorSpec> specs =
          ml::GanTensors(network, gan_->options().sizes());
      for (size_t i = 0; i < specs.size(); ++i) {
        if (!specs[i].is_buffer) parameters.push_back(weights[i].second);
      }
    }
    return parameters;
  }

 private:
  const std::unique_ptr<ml::Gan> gan_;
  const ModelBatches batches_;
  int64_t steps_ = 0;
};

// Those of `weights` that are not named.
std::vector<at::Tensor> Without(const std::vector<std::string>& names,
                                const NamedTensors& weights) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : weights) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      tensors.push_back(tensor);
    }
  }
  return tensors;
}

class OurClassifier : public SteppedModel {
 public:
  OurClassifier(std::unique_ptr<ml::Classifier> classifier, int64_t batch_size)
      : classifier_(std::move(classifier)), batches_(batch_size) {
    classifier_->BeginEpoch(0);
  }

  absl::Status Step() override {
    const ModelBatches::Batch& batch = batches_.Of(steps_++);
    return classifier_
        ->TrainStep({.images = batch.images, .labels = batch.labels})
        .status();
  }

  std::vector<at::Tensor> Parameters() const override {
    return Without(classifier_->BufferNames(),
                   classifier_->LendWeights().value);
  }

 private:
  const std::unique_ptr<ml::Classifier> classifier_;
  const ModelBatches batches_;
  int64_t steps_ = 0;
};

class OurRegressor : public SteppedModel {
 public:
  OurRegressor(std::unique_ptr<ml::Regressor> regressor, int64_t batch_size)
      : regressor_(std::move(regressor)), batches_(batch_size) {
    regressor_->BeginEpoch(0);
  }

  absl::Status Step() override {
    const ModelBatches::Batch& batch = batches_.Of(steps_++);
    return regressor_->TrainStep(batch.features, batch.targets).status();
  }

  std::vector<at::Tensor> Parameters() const override {
    return Without({}, regressor_->LendWeights().value);
  }

 private:
  const std::unique_ptr<ml::Regressor> regressor_;
  const ModelBatches batches_;
  int64_t steps_ = 0;
};

absl::StatusOr<std::unique_ptr<SteppedModel>> MakeGan(
    ml::GanArchitecture architecture, int64_t classes, int64_t batch_size) {
  MR_ASSIGN_OR_RETURN(
      std::unique_ptr<ml::Gan> gan,
      ml::Gan::Create({.shape = {kModelChannels, kModelSide, kModelSide},
                       .latent_dim = kModelLatent,
                       .architecture = architecture,
                       .classes = classes,
                       .device = "cpu",
                       .weights_seed = 1,
                       .noise_seed = kModelNoiseSeed}));
  return std::make_unique<OurGan>(std::move(gan), batch_size);
}

absl::StatusOr<double> MillisecondsOfStep(SteppedModel& model, int64_t steps) {
  const absl::Time start = absl::Now();
  for (int64_t i = 0; i < steps; ++i) MR_RETURN_IF_ERROR(model.Step());
  return absl::ToDoubleMilliseconds(absl::Now() - start) /
         static_cast<double>(steps);
}

}  // namespace

ModelBatches::ModelBatches(int64_t batch_size) {
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(kDataSeed);
  for (int64_t i = 0; i < kNumBatches; ++i) {
    batches_.push_back(
        {.images = at::randint(
             256, {batch_size, kModelChannels, kModelSide, kModelSide}, random,
             at::kByte),
         .labels = at::randint(kModelClasses, {batch_size}, random, at::kLong),
         .features = at::randn({batch_size, kModelInputs}, random, at::kFloat),
         .targets = at::randn({batch_size}, random, at::kFloat)});
  }
}

const ModelBatches::Batch& ModelBatches::Of(int64_t step) const {
  return batches_[static_cast<size_t>(step % kNumBatches)];
}

absl::StatusOr<std::unique_ptr<SteppedModel>> MakeOurModel(
    const std::string& name, int64_t batch_size) {
  if (name == "mlp_gan") {
    return MakeGan(ml::GanArchitecture::kMlp, 0, batch_size);
  }
  if (name == "dcgan") {
    return MakeGan(ml::GanArchitecture::kDcgan, 0, batch_size);
  }
  if (name == "conditional_gan") {
    return MakeGan(ml::GanArchitecture::kMlp, kModelClasses, batch_size);
  }
  if (name == "mlp" || name == "cnn" || name == "resnet20") {
    // As ClassifierWorkerOptions.
    MR_ASSIGN_OR_RETURN(std::unique_ptr<ml::Classifier> classifier,
                        ml::Classifier::Create({.network = name,
                                                .channels = kModelChannels,
                                                .height = kModelSide,
                                                .width = kModelSide,
                                                .hidden = kModelHidden,
                                                .classes = kModelClasses,
                                                .momentum = 0.9,
                                                .weight_decay = 1e-4,
                                                .lr = 0.05,
                                                .device = "cpu"}));
    return std::make_unique<OurClassifier>(std::move(classifier), batch_size);
  }
  if (name == "regression") {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<ml::Regressor> regressor,
                        ml::Regressor::Create({.inputs = kModelInputs,
                                               .hidden = kModelHidden,
                                               .lr = 0.003,
                                               .device = "cpu"}));
    return std::make_unique<OurRegressor>(std::move(regressor), batch_size);
  }
  return absl::InvalidArgumentError(absl::StrCat("no model '", name, "'"));
}

int ServeModels(const MakeSteppedModel& make) {
  at::set_num_threads(1);
  std::map<std::string, std::unique_ptr<SteppedModel>> models;
  return ServeCommands(
      [&](const std::string& command) -> absl::StatusOr<std::string> {
        std::istringstream words(command);
        std::string verb, name;
        int64_t number = 0;
        if (!(words >> verb >> name >> number) || number < 1) {
          return absl::InvalidArgumentError(
              absl::StrCat("no such command: ", command));
        }
        if (verb == "open") {
          MR_ASSIGN_OR_RETURN(std::unique_ptr<SteppedModel> model,
                              make(name, number));
          for (int i = 0; i < kWarmUp; ++i) MR_RETURN_IF_ERROR(model->Step());
          int64_t parameters = 0;
          for (const at::Tensor& tensor : model->Parameters()) {
            parameters += tensor.numel();
          }
          models[name] = std::move(model);
          return absl::StrCat(parameters);
        }
        const auto model = models.find(name);
        if (verb != "train" || model == models.end()) {
          return absl::InvalidArgumentError(absl::StrCat(
              "no such command, or 'open' comes first: ", command));
        }
        MR_ASSIGN_OR_RETURN(const double milliseconds,
                            MillisecondsOfStep(*model->second, number));
        return absl::StrCat(milliseconds);
      });
}

}  // namespace miniray::bench
