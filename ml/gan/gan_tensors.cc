#include "ml/gan/gan_tensors.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ml/data/describe_tensor.h"

namespace miniray::ml {
namespace {

constexpr char kEmaPrefix[] = "generator_ema.";

std::string Prefix(GanNetwork network) {
  return absl::StrCat(GanNetworkName(network), ".");
}

NamedTensors WithPrefix(absl::string_view prefix, NamedTensors tensors) {
  for (auto& [name, tensor] : tensors) {
    name.insert(0, prefix.data(), prefix.size());
  }
  return tensors;
}

NamedTensors WithoutPrefix(absl::string_view prefix,
                           const NamedTensors& tensors) {
  NamedTensors selected;
  for (const auto& [name, tensor] : tensors) {
    if (absl::StartsWith(name, prefix)) {
      selected.emplace_back(name.substr(prefix.size()), tensor);
    }
  }
  return selected;
}

bool Matches(const TensorSpec& spec, const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         tensor.scalar_type() == (spec.is_integer ? at::kLong : at::kFloat) &&
         tensor.sizes() == at::IntArrayRef(spec.sizes);
}

}  // namespace

NamedTensors WithNetworkPrefix(GanNetwork network, NamedTensors tensors) {
  return WithPrefix(Prefix(network), std::move(tensors));
}

NamedTensors SelectNetwork(GanNetwork network, const NamedTensors& tensors) {
  return WithoutPrefix(Prefix(network), tensors);
}

NamedTensors SelectTrainedGenerator(const NamedTensors& tensors) {
  NamedTensors average = WithoutPrefix(kEmaPrefix, tensors);
  return average.empty() ? SelectNetwork(GanNetwork::kGenerator, tensors)
                         : average;
}

NamedTensors WithEmaPrefix(NamedTensors tensors) {
  return WithPrefix(kEmaPrefix, std::move(tensors));
}

std::vector<TensorSpec> MomentSpecs(GanNetwork network, const GanSizes& sizes) {
  const std::string prefix = absl::StrCat(GanNetworkName(network), "_adam.");
  std::vector<TensorSpec> specs = {{.name = prefix + "step",
                                    .sizes = {1},
                                    .is_buffer = true,
                                    .is_integer = true}};
  for (const char* moment : {"exp_avg.", "exp_avg_sq."}) {
    for (TensorSpec& spec : GanTensors(network, sizes)) {
      if (spec.is_buffer) continue;
      spec.name.insert(0, absl::StrCat(prefix, moment));
      spec.is_buffer = true;
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

std::vector<TensorSpec> GanWeightSpecs(const GanSizes& sizes, bool ema,
                                       bool moments) {
  std::vector<TensorSpec> specs;
  for (const GanNetwork network : kGanNetworks) {
    for (TensorSpec& spec : GanTensors(network, sizes)) {
      spec.name.insert(0, Prefix(network));
      specs.push_back(std::move(spec));
    }
  }
  if (ema) {
    for (TensorSpec& spec : GanTensors(GanNetwork::kGenerator, sizes)) {
      spec.name.insert(0, kEmaPrefix);
      spec.is_buffer = true;
      specs.push_back(std::move(spec));
    }
  }
  if (moments) {
    for (const GanNetwork network : kGanNetworks) {
      for (TensorSpec& spec : MomentSpecs(network, sizes)) {
        specs.push_back(std::move(spec));
      }
    }
  }
  return specs;
}

absl::Status CheckTensors(const std::vector<TensorSpec>& specs,
                          const NamedTensors& tensors,
                          absl::string_view whose) {
  for (size_t i = 0; i < specs.size() && i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    if (name != specs[i].name) {
      return absl::InvalidArgumentError(
          absl::StrCat(whose, ": tensor ", i, " is '", name, "'; expected '",
                       specs[i].name, "'"));
    }
    if (!Matches(specs[i], tensor)) {
      return absl::InvalidArgumentError(
          absl::StrCat(whose, ": ", name, " is ", DescribeTensor(tensor),
                       "; expected ", specs[i].is_integer ? "Long" : "Float",
                       " [", absl::StrJoin(specs[i].sizes, ", "), "]"));
    }
  }
  if (tensors.size() < specs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        whose, ": ", specs[tensors.size()].name, " is missing; expected ",
        specs.size(), " tensors, got ", tensors.size()));
  }
  if (tensors.size() > specs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        whose, ": '", tensors[specs.size()].first, "' is unknown; expected ",
        specs.size(), " tensors, got ", tensors.size()));
  }
  return absl::OkStatus();
}

}  // namespace miniray::ml
