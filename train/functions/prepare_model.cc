#include "train/functions/prepare_model.h"

#include <stdexcept>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "train/device.h"

namespace miniray::train::internal {

std::unique_ptr<DistributedModule> Distribute(
    std::shared_ptr<ProcessGroup> group, torch::nn::Module& module,
    const std::string& device, const DistributedOptions& options) {
  const absl::StatusOr<c10::Device> chosen = train::ChooseDevice(device);
  if (!chosen.ok()) {
    throw std::runtime_error(std::string(chosen.status().message()));
  }
  module.to(*chosen);
  absl::StatusOr<std::unique_ptr<DistributedModule>> distributed =
      DistributedModule::Create(std::move(group), module, options);
  if (!distributed.ok()) throw CollectiveError(distributed.status());
  return *std::move(distributed);
}

}  // namespace miniray::train::internal
