#include "tools/bench/peers/plain_models.h"

#include <tuple>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tools/bench/resnet20.h"
#include "torch/nn/functional/loss.h"
#include "torch/optim/adam.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace miniray::bench {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr double kLeakySlope = 0.2;
constexpr double kDropout = 0.3;
constexpr int64_t kLabelNumbers = 32;  // That a label adds to the noise.
constexpr int64_t kImageSize = kModelChannels * kModelSide * kModelSide;

torch::Tensor ToUnitRange(const torch::Tensor& images) {
  return images.to(torch::kFloat).div_(127.5).sub_(1);
}

nn::LeakyReLU LeakyReLU() {
  return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(kLeakySlope));
}

nn::Sequential MlpGenerator(int64_t inputs) {
  nn::Sequential layers;
  for (const int64_t width : {256, 512, 1024}) {
    layers->push_back(nn::Linear(inputs, width));
    layers->push_back(nn::ReLU());
    layers->push_back(nn::BatchNorm1d(width));
    inputs = width;
  }
  layers->push_back(nn::Linear(inputs, kImageSize));
  layers->push_back(nn::Tanh());
  return layers;
}

// Returns float32 [B, 256].
nn::Sequential MlpDiscriminator() {
  nn::Sequential layers;
  layers->push_back(nn::Flatten());
  int64_t inputs = kImageSize;
  for (const int64_t width : {1024, 512, 256}) {
    layers->push_back(nn::Linear(inputs, width));
    layers->push_back(LeakyReLU());
    layers->push_back(nn::Dropout(kDropout));
    inputs = width;
  }
  return layers;
}

nn::ConvTranspose2d Doubling(int64_t in, int64_t out, bool bias) {
  return nn::ConvTranspose2d(
      nn::ConvTranspose2dOptions(in, out, 4).stride(2).padding(1).bias(bias));
}

nn::Conv2d Halving(int64_t in, int64_t out, bool bias) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, 4).stride(2).padding(1).bias(bias));
}

// 4 x 4 maps, 8 x 8, 16 x 16, 32 x 32.
nn::Sequential DcganGenerator() {
  return nn::Sequential(
      nn::Linear(nn::LinearOptions(kModelLatent, 256 * 4 * 4).bias(false)),
      nn::Unflatten(nn::UnflattenOptions(1, {256, 4, 4})), nn::BatchNorm2d(256),
      nn::ReLU(), Doubling(256, 128, false), nn::BatchNorm2d(128), nn::ReLU(),
      Doubling(128, 64, false), nn::BatchNorm2d(64), nn::ReLU(),
      Doubling(64, kModelChannels, true), nn::Tanh());
}

// Returns float32 [B, 256 * 4 * 4].
nn::Sequential DcganDiscriminator() {
  return nn::Sequential(Halving(kModelChannels, 64, true), LeakyReLU(),
                        Halving(64, 128, false), nn::BatchNorm2d(128),
                        LeakyReLU(), Halving(128, 256, false),
                        nn::BatchNorm2d(256), LeakyReLU(), nn::Flatten());
}

class PlainGan : public SteppedModel {
 public:
  PlainGan(bool dcgan, int64_t classes, int64_t batch_size)
      : batches_(batch_size),
        random_(at::make_generator<at::CPUGeneratorImpl>(kModelNoiseSeed)),
        generator_(dcgan, classes),
        discriminator_(dcgan, classes),
        generator_optimizer_(generator_->parameters(), AdamOptions()),
        discriminator_optimizer_(discriminator_->parameters(), AdamOptions()) {}

  absl::Status Step() override {
    const ModelBatches::Batch& batch = batches_.Of(steps_++);
    const torch::Tensor real = ToUnitRange(batch.images);
    const torch::Tensor noise =
        torch::randn({real.size(0), kModelLatent}, random_);
    const torch::Tensor fake = generator_(noise, batch.labels);

    discriminator_optimizer_.zero_grad();
    const torch::Tensor of_real = discriminator_(real, batch.labels);
    const torch::Tensor of_fake = discriminator_(fake.detach(), batch.labels);
    const torch::Tensor discriminator_loss =
        (F::binary_cross_entropy_with_logits(of_real,
                                             torch::ones_like(of_real)) +
         F::binary_cross_entropy_with_logits(of_fake,
                                             torch::zeros_like(of_fake))) /
        2;
    discriminator_loss.backward();
    discriminator_optimizer_.step();

    generator_optimizer_.zero_grad();
    const torch::Tensor logits = discriminator_(fake, batch.labels);
    const torch::Tensor generator_loss =
        F::binary_cross_entropy_with_logits(logits, torch::ones_like(logits));
    generator_loss.backward();
    generator_optimizer_.step();
    loss_sum_ +=
        discriminator_loss.item<double>() + generator_loss.item<double>();
    return absl::OkStatus();
  }

  std::vector<at::Tensor> Parameters() const override {
    std::vector<at::Tensor> parameters = generator_->parameters();
    const std::vector<at::Tensor> others = discriminator_->parameters();
    parameters.insert(parameters.end(), others.begin(), others.end());
    return parameters;
  }

 private:
  static torch::optim::AdamOptions AdamOptions() {
    return torch::optim::AdamOptions(2e-4).betas(std::make_tuple(0.5, 0.999));
  }

  const ModelBatches batches_;
  at::Generator random_;
  PlainGenerator generator_;
  PlainDiscriminator discriminator_;
  torch::optim::Adam generator_optimizer_;
  torch::optim::Adam discriminator_optimizer_;
  int64_t steps_ = 0;
  double loss_sum_ = 0;  // For the means of an epoch.
};

// A module that is trained on one loss. Loss: of (module, batch).
template <class Module, class Optimizer>
class PlainModel : public SteppedModel {
 public:
  using Loss = torch::Tensor (*)(Module&, const ModelBatches::Batch&);

  template <class Options>
  PlainModel(Module module, const Options& options, Loss loss,
             int64_t batch_size)
      : module_(std::move(module)),
        optimizer_(module_->parameters(), options),
        loss_(loss),
        batches_(batch_size) {}

  absl::Status Step() override {
    optimizer_.zero_grad();
    const torch::Tensor loss = loss_(module_, batches_.Of(steps_++));
    loss.backward();
    optimizer_.step();
    loss_sum_ += loss.template item<double>();
    return absl::OkStatus();
  }

  std::vector<at::Tensor> Parameters() const override {
    return module_->parameters();
  }

 private:
  Module module_;
  Optimizer optimizer_;
  const Loss loss_;
  const ModelBatches batches_;
  int64_t steps_ = 0;
  double loss_sum_ = 0;  // For the mean of an epoch.
};

template <class Module>
std::unique_ptr<SteppedModel> PlainClassifier(Module module,
                                              int64_t batch_size) {
  return std::make_unique<PlainModel<Module, torch::optim::SGD>>(
      std::move(module),
      torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4),
      [](Module& network, const ModelBatches::Batch& batch) {
        return F::cross_entropy(network->forward(ToUnitRange(batch.images)),
                                batch.labels);
      },
      batch_size);
}

nn::Sequential Mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(kImageSize, kModelHidden),
                        nn::ReLU(), nn::Linear(kModelHidden, kModelClasses));
}

nn::Conv2d Convolution(int64_t in, int64_t out) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1));
}

nn::Sequential Cnn() {
  return nn::Sequential(
      Convolution(kModelChannels, 32), nn::ReLU(), nn::MaxPool2d(2),
      Convolution(32, 64), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
      nn::Linear(64 * (kModelSide / 4) * (kModelSide / 4), kModelHidden),
      nn::ReLU(), nn::Linear(kModelHidden, kModelClasses));
}

std::unique_ptr<SteppedModel> PlainRegression(int64_t batch_size) {
  nn::Sequential network(nn::Linear(kModelInputs, kModelHidden), nn::ReLU(),
                         nn::Linear(kModelHidden, kModelHidden), nn::ReLU(),
                         nn::Linear(kModelHidden, 1));
  return std::make_unique<PlainModel<nn::Sequential, torch::optim::Adam>>(
      std::move(network), torch::optim::AdamOptions(0.003),
      [](nn::Sequential& module, const ModelBatches::Batch& batch) {
        return F::mse_loss(module->forward(batch.features).squeeze(1),
                           batch.targets);
      },
      batch_size);
}

}  // namespace

PlainGeneratorImpl::PlainGeneratorImpl(bool dcgan, int64_t classes) {
  int64_t inputs = kModelLatent;
  if (classes > 0) {
    embedding =
        register_module("embedding", nn::Embedding(classes, kLabelNumbers));
    inputs += kLabelNumbers;
  }
  layers = register_module("layers",
                           dcgan ? DcganGenerator() : MlpGenerator(inputs));
}

torch::Tensor PlainGeneratorImpl::forward(const torch::Tensor& noise,
                                          const torch::Tensor& labels) {
  torch::Tensor x = noise;
  if (!embedding.is_empty()) x = torch::cat({x, embedding(labels)}, 1);
  return layers->forward(x).view(
      {noise.size(0), kModelChannels, kModelSide, kModelSide});
}

PlainDiscriminatorImpl::PlainDiscriminatorImpl(bool dcgan, int64_t classes) {
  const int64_t features = dcgan ? 256 * 4 * 4 : 256;
  if (classes > 0) {
    embedding = register_module("embedding", nn::Embedding(classes, features));
  }
  layers = register_module("layers",
                           dcgan ? DcganDiscriminator() : MlpDiscriminator());
  output = register_module("output", nn::Linear(features, 1));
}

torch::Tensor PlainDiscriminatorImpl::forward(const torch::Tensor& images,
                                              const torch::Tensor& labels) {
  const torch::Tensor features = layers->forward(images);
  const torch::Tensor logits = output(features);
  if (embedding.is_empty()) return logits;
  return logits + (embedding(labels) * features).sum(1, true);
}

absl::StatusOr<std::unique_ptr<SteppedModel>> MakePlainModel(
    const std::string& name, int64_t batch_size) {
  if (name == "mlp_gan") {
    return std::make_unique<PlainGan>(false, 0, batch_size);
  }
  if (name == "dcgan") return std::make_unique<PlainGan>(true, 0, batch_size);
  if (name == "conditional_gan") {
    return std::make_unique<PlainGan>(false, kModelClasses, batch_size);
  }
  if (name == "mlp") return PlainClassifier(Mlp(), batch_size);
  if (name == "cnn") return PlainClassifier(Cnn(), batch_size);
  if (name == "resnet20") return PlainClassifier(ResNet20(), batch_size);
  if (name == "regression") return PlainRegression(batch_size);
  return absl::InvalidArgumentError(absl::StrCat("no model '", name, "'"));
}

}  // namespace miniray::bench
