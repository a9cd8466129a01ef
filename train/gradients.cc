#include "train/gradients.h"

#include "train/state_dict.h"

namespace miniray::train {

ReadOnly<NamedTensors> Gradients(const torch::nn::Module& module) {
  NamedTensors gradients;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.requires_grad()) continue;
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) {
      gradient = torch::zeros_like(parameter.detach());
    } else if (gradient.layout() != at::kStrided) {
      gradient = gradient.to_dense();  // Of an embedding with sparse gradients.
    }
    gradients.emplace_back(item.key(), gradient.detach().cpu().contiguous());
  }
  for (const auto& item : module.named_buffers()) {
    gradients.emplace_back(item.key(),
                           item.value().detach().cpu().contiguous());
  }
  return {std::move(gradients)};
}

std::vector<std::string> UntrainedNames(const torch::nn::Module& module) {
  std::vector<std::string> names = BufferNames(module);
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) names.push_back(item.key());
  }
  return names;
}

}  // namespace miniray::train
