#include "train/mixed_precision.h"

#include "ATen/autocast_mode.h"
#include "absl/strings/str_cat.h"
#include "train/libtorch_compat.h"

namespace miniray::train {
absl::Status CheckPrecision(Precision precision, const c10::Device& device) {
  if (precision == Precision::kFloat32 || device.is_cuda()) {
    return absl::OkStatus();
  }
  if (precision == Precision::kBfloat16 && device.is_cpu()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      precision == Precision::kFloat16
          ? absl::StrCat("float16 needs a model on a CUDA device, and this one "
                         "is on ",
                         device.str(), "; bfloat16 works on the CPU")
          : absl::StrCat("bfloat16 needs a model on the CPU or a CUDA device, "
                         "and this one is on ",
                         device.str()));
}

Autocast::Autocast(Precision precision, const c10::Device& device)
    : device_(device.type()),
      before_enabled_(compat::AutocastEnabled(device_)),
      before_type_(compat::AutocastType(device_)) {
  at::autocast::increment_nesting();
  if (precision == Precision::kFloat32) {
    compat::SetAutocast(device_, false, before_type_);
  } else {
    compat::SetAutocast(
        device_, true,
        precision == Precision::kFloat16 ? at::kHalf : at::kBFloat16);
  }
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  compat::SetAutocast(device_, before_enabled_, before_type_);
}

}  // namespace miniray::train
