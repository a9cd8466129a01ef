#include "train/mixed_precision.h"

#include "ATen/autocast_mode.h"
#include "absl/strings/str_cat.h"

namespace miniray::train {
namespace {

namespace autocast = at::autocast;

bool Enabled(bool on_cuda) {
  return on_cuda ? autocast::is_enabled() : autocast::is_cpu_enabled();
}

c10::ScalarType Type(bool on_cuda) {
  return on_cuda ? autocast::get_autocast_gpu_dtype()
                 : autocast::get_autocast_cpu_dtype();
}

void Set(bool on_cuda, bool enabled, c10::ScalarType type) {
  if (on_cuda) {
    autocast::set_enabled(enabled);
    autocast::set_autocast_gpu_dtype(type);
  } else {
    autocast::set_cpu_enabled(enabled);
    autocast::set_autocast_cpu_dtype(type);
  }
}

}  // namespace

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
    : on_cuda_(device.is_cuda()),
      before_enabled_(Enabled(on_cuda_)),
      before_type_(Type(on_cuda_)) {
  autocast::increment_nesting();
  if (precision == Precision::kFloat32) {
    Set(on_cuda_, false, before_type_);
  } else {
    Set(on_cuda_, true,
        precision == Precision::kFloat16 ? at::kHalf : at::kBFloat16);
  }
}

Autocast::~Autocast() {
  if (autocast::decrement_nesting() == 0) autocast::clear_cache();
  Set(on_cuda_, before_enabled_, before_type_);
}

}  // namespace miniray::train
