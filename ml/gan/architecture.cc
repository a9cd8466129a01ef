#include "ml/gan/architecture.h"

#include "absl/strings/str_cat.h"

namespace miniray::ml {
namespace {

void AddLinear(int index, int64_t inputs, int64_t outputs,
               std::vector<TensorSpec>* out) {
  const std::string prefix = absl::StrCat("layers.", index, ".");
  out->push_back({.name = prefix + "weight", .sizes = {outputs, inputs}});
  out->push_back({.name = prefix + "bias", .sizes = {outputs}});
}

void AddBatchNorm(int index, int64_t features, std::vector<TensorSpec>* out) {
  const std::string prefix = absl::StrCat("layers.", index, ".");
  out->push_back({.name = prefix + "weight", .sizes = {features}});
  out->push_back({.name = prefix + "bias", .sizes = {features}});
  out->push_back({.name = prefix + "running_mean",
                  .sizes = {features},
                  .is_buffer = true});
  out->push_back(
      {.name = prefix + "running_var", .sizes = {features}, .is_buffer = true});
  out->push_back({.name = prefix + "num_batches_tracked",
                  .is_buffer = true,
                  .is_integer = true});
}

}  // namespace

std::string ImageShape::ToString() const {
  return absl::StrCat(channels, "x", height, "x", width);
}

absl::string_view GanNetworkName(GanNetwork network) {
  return network == GanNetwork::kGenerator ? "generator" : "discriminator";
}

absl::Status ValidateGanSizes(int64_t latent_dim, const ImageShape& shape) {
  if (latent_dim < 1 || latent_dim > kMaxLatentDim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "latent_dim is ", latent_dim, "; expected 1 to ", kMaxLatentDim));
  }
  if (shape.channels != 1 && shape.channels != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images have ", shape.channels, " channels; expected 1 or 3"));
  }
  if (shape.height < 1 || shape.width < 1 || shape.height > kMaxImageSize ||
      shape.width > kMaxImageSize || shape.size() > kMaxImageSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images are ", shape.ToString(), " values; expected at least 1x1x1 and",
        " at most ", kMaxImageSize, " in all"));
  }
  return absl::OkStatus();
}

int GanLayerCount(GanNetwork network) {
  return network == GanNetwork::kGenerator
             ? static_cast<int>(3 * kGeneratorWidths.size()) + 2
             : static_cast<int>(3 * kDiscriminatorWidths.size()) + 1;
}

std::vector<TensorSpec> GanTensors(GanNetwork network, int64_t latent_dim,
                                   const ImageShape& shape) {
  std::vector<TensorSpec> specs;
  int index = 0;
  if (network == GanNetwork::kGenerator) {
    int64_t inputs = latent_dim;
    for (const int64_t width : kGeneratorWidths) {
      AddLinear(index, inputs, width, &specs);
      AddBatchNorm(index + 2, width, &specs);  // ReLU is index + 1.
      inputs = width;
      index += 3;
    }
    AddLinear(index, inputs, shape.size(), &specs);
  } else {
    int64_t inputs = shape.size();
    for (const int64_t width : kDiscriminatorWidths) {
      AddLinear(index, inputs, width, &specs);
      inputs = width;
      index += 3;  // LeakyReLU and Dropout follow.
    }
    AddLinear(index, inputs, 1, &specs);
  }
  return specs;
}

}  // namespace miniray::ml
