#include "runtime/tensor/on_device.h"

#include "ATen/Context.h"
#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "c10/util/Exception.h"
#include "runtime/base/status_macros.h"

namespace miniray::internal {
namespace {

ABSL_CONST_INIT absl::Mutex mu(absl::kConstInit);
std::optional<c10::Device> of_tests ABSL_GUARDED_BY(mu);

c10::Device FirstDevice() {
  if (at::hasCUDA()) return c10::Device(c10::DeviceType::CUDA, 0);
  return c10::Device(c10::DeviceType::CPU);
}

}  // namespace

c10::Device ReceivingDevice() {
  {
    absl::MutexLock lock(&mu);
    if (of_tests.has_value()) return *of_tests;
  }
  static const c10::Device device = FirstDevice();
  return device;
}

void SetReceivingDevice(std::optional<c10::Device> device) {
  absl::MutexLock lock(&mu);
  of_tests = device;
}

absl::Status MoveTo(c10::Device device, at::Tensor* tensor) {
  try {
    *tensor = tensor->to(device);
  } catch (const c10::Error& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("a tensor of ", tensor->nbytes(), " bytes does not go to ",
                     device.str(), ": ", error.what_without_backtrace()));
  }
  return absl::OkStatus();
}

absl::Status MoveTo(c10::Device device, std::vector<at::Tensor>* tensors) {
  for (at::Tensor& tensor : *tensors) {
    MR_RETURN_IF_ERROR(MoveTo(device, &tensor));
  }
  return absl::OkStatus();
}

absl::Status MoveTo(c10::Device device, NamedTensors* tensors) {
  for (auto& [name, tensor] : *tensors) {
    MR_RETURN_IF_ERROR(MoveTo(device, &tensor));
  }
  return absl::OkStatus();
}

}  // namespace miniray::internal
