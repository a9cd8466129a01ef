#include "train/state_dict.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/copy.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::train {
namespace {

// Parameters, then buffers; they share memory with the module.
NamedTensors TensorsOf(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.emplace_back(item.key(), item.value().detach());
  }
  for (const auto& item : module.named_buffers()) {
    tensors.emplace_back(item.key(), item.value().detach());
  }
  return tensors;
}

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return absl::StrCat(at::toString(tensor.scalar_type()), " [",
                      absl::StrJoin(tensor.sizes(), ", "), "]");
}

}  // namespace

NamedTensors StateDict(const torch::nn::Module& module) {
  NamedTensors tensors = TensorsOf(module);
  for (auto& [name, tensor] : tensors) {
    // clone() keeps strides; what travels is contiguous anyway.
    tensor = tensor.to(at::kCPU).clone(at::MemoryFormat::Contiguous);
  }
  return tensors;
}

ReadOnly<NamedTensors> LendStateDict(const torch::nn::Module& module) {
  NamedTensors tensors = TensorsOf(module);
  for (auto& [name, tensor] : tensors) tensor = tensor.cpu().contiguous();
  return {std::move(tensors)};
}

std::vector<std::string> BufferNames(const torch::nn::Module& module) {
  return module.named_buffers().keys();
}

void ShareParameters(torch::nn::Module& module) {
  const NamedTensors now = TensorsOf(module);
  for (const auto& [name, tensor] : now) {
    if (!tensor.device().is_cpu()) return;
  }
  const NamedTensors shared = EmptySharedTensors(now);
  const torch::NoGradGuard no_grad;
  size_t i = 0;
  auto move = [&](at::Tensor tensor) {
    const at::Tensor& target = shared[i++].second;
    target.copy_(tensor);
    tensor.set_data(target);
  };
  for (auto& item : module.named_parameters()) move(item.value());
  for (auto& item : module.named_buffers()) move(item.value());
}

absl::Status LoadStateDict(torch::nn::Module& module,
                           const NamedTensors& weights) {
  std::map<std::string, at::Tensor> by_name;
  for (const auto& [name, tensor] : weights) {
    if (!by_name.emplace(name, tensor).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the weights have '", name, "' twice"));
    }
  }
  NamedTensors targets = TensorsOf(module);
  for (const auto& [name, target] : targets) {
    auto it = by_name.find(name);
    if (it == by_name.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the weights lack '", name,
                                                     "' ", Describe(target),
                                                     ", which the module has"));
    }
    const at::Tensor& source = it->second;
    if (!source.defined() || source.sizes() != target.sizes() ||
        source.scalar_type() != target.scalar_type()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", name, "' is ", Describe(source), " in the weights, but ",
          Describe(target), " in the module"));
    }
  }
  if (by_name.size() > targets.size()) {
    std::map<std::string, at::Tensor> surplus = by_name;
    for (const auto& [name, target] : targets) surplus.erase(name);
    return absl::InvalidArgumentError(
        absl::StrCat("the weights have '", surplus.begin()->first,
                     "', which the module has not"));
  }
  for (auto& [name, target] : targets) {
    const at::Tensor& source = by_name[name];
    if (target.is_contiguous() && source.is_contiguous() &&
        target.device().is_cpu() && source.device().is_cpu() &&
        !source.is_conj() && !source.is_neg()) {
      if (target.data_ptr() == source.data_ptr()) continue;
      CopyLarge(target.data_ptr(), source.data_ptr(), target.nbytes());
    } else {
      target.copy_(source);
    }
  }
  return absl::OkStatus();
}

}  // namespace miniray::train
