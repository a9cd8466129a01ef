#include "train/functions/prepare_model.h"

#include <stdexcept>

#include "absl/status/statusor.h"
#include "train/device.h"

namespace miniray::train::internal {

std::unique_ptr<DistributedModule> Distribute(
    std::shared_ptr<ProcessGroup> group, torch::nn::Module& module,
    c10::Device device, const DistributedOptions& options) {
  module.to(device);
  absl::StatusOr<std::unique_ptr<DistributedModule>> distributed =
      DistributedModule::Create(std::move(group), module, options);
  if (!distributed.ok()) throw CollectiveError(distributed.status());
  return *std::move(distributed);
}

c10::Device DeviceOrThrow(const std::string& name) {
  const absl::StatusOr<c10::Device> device = train::ChooseDevice(name);
  if (device.ok()) return *device;
  throw std::runtime_error(std::string(device.status().message()));
}

void CheckHooks(const DistributedModule& distributed) {
  if (const absl::Status hooks = distributed.CheckHooks(); !hooks.ok()) {
    throw std::logic_error(std::string(hooks.message()));
  }
}

std::vector<at::Tensor> GradientsOf(const torch::nn::Module& module) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

}  // namespace miniray::train::internal
