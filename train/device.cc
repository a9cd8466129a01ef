#include "train/device.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/api/miniray.h"
#include "torch/cuda.h"

namespace miniray::train {

absl::StatusOr<c10::Device> ChooseDevice(absl::string_view name) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const ActorContext* const actor = ActorContext::Current();
  return internal::ChooseDevice(
      name,
      torch::cuda::is_available()
          ? static_cast<int>(torch::cuda::device_count())
          : 0,
      visible == nullptr ? "not set" : absl::StrCat("'", visible, "'"),
      actor == nullptr ? std::vector<std::string>() : actor->gpu_ids());
}

namespace internal {

absl::StatusOr<c10::Device> ChooseDevice(
    absl::string_view name, int num_cuda_devices, const std::string& visible,
    const std::vector<std::string>& given) {
  // Nobody who asks for a GPU means to train on the CPU.
  if (name == "auto" && num_cuda_devices == 0 && !given.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device is 'auto', and of the GPUs that this actor has been given (",
        absl::StrJoin(given, ", "),
        ") LibTorch finds none: it was built without CUDA, there is no driver, "
        "or CUDA_VISIBLE_DEVICES (",
        visible,
        ") hides them; 'cpu' trains on the CPU, and then no GPU need be asked "
        "for"));
  }
  if (name == "cpu" || (name == "auto" && num_cuda_devices == 0)) {
    return c10::Device(c10::kCPU);
  }
  int index = 0;
  absl::string_view rest = name;
  if (absl::ConsumePrefix(&rest, "cuda:")) {
    // No signs and no spaces, which SimpleAtoi would take.
    if (rest.find_first_not_of("0123456789") != absl::string_view::npos ||
        !absl::SimpleAtoi(rest, &index)) {
      index = -1;
    }
  } else if (name != "auto" && name != "cuda") {
    index = -1;
  }
  if (index < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device is '", name,
                     "'; expected auto, cpu, cuda or cuda:0, cuda:1 ..."));
  }
  if (num_cuda_devices == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device is '", name,
        "', and LibTorch finds no CUDA device in this process: it was built "
        "without CUDA, there is no driver, or CUDA_VISIBLE_DEVICES (",
        visible, ") hides all; 'auto' or 'cpu' trains on the CPU"));
  }
  if (index >= num_cuda_devices) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device is '", name, "', and this process sees ", num_cuda_devices,
        " CUDA devices, from cuda:0 on (CUDA_VISIBLE_DEVICES is ", visible,
        ")"));
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace internal
}  // namespace miniray::train
