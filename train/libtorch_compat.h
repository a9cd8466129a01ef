// What LibTorch calls differently from version to version: Debian's 1.13, and
// those of today (2.11). All other code is the same for both.

#ifndef MINIRAY_TRAIN_LIBTORCH_COMPAT_H_
#define MINIRAY_TRAIN_LIBTORCH_COMPAT_H_

#include <string>

#include "ATen/autocast_mode.h"
#include "ATen/core/Tensor.h"
#include "c10/core/DeviceType.h"
#include "c10/core/ScalarType.h"
#include "c10/core/Stream.h"
#include "c10/util/C++17.h"
#include "torch/version.h"

namespace miniray::train::compat {

#if TORCH_VERSION_MAJOR > 2 || \
    (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)

inline bool AutocastEnabled(c10::DeviceType device) {
  return at::autocast::is_autocast_enabled(device);
}
inline c10::ScalarType AutocastType(c10::DeviceType device) {
  return at::autocast::get_autocast_dtype(device);
}
inline void SetAutocast(c10::DeviceType device, bool enabled,
                        c10::ScalarType type) {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, type);
}

// Of a parameter in an optimizer's state().
inline void* OptimizerStateKey(const at::Tensor& parameter) {
  return parameter.unsafeGetTensorImpl();
}

// The cudaStream_t behind a stream of a CUDA device.
inline void* NativeHandle(const c10::Stream& stream) {
  return stream.native_handle();
}

#else

// CPU and CUDA alone.
inline bool AutocastEnabled(c10::DeviceType device) {
  return device == c10::kCUDA ? at::autocast::is_enabled()
                              : at::autocast::is_cpu_enabled();
}
inline c10::ScalarType AutocastType(c10::DeviceType device) {
  return device == c10::kCUDA ? at::autocast::get_autocast_gpu_dtype()
                              : at::autocast::get_autocast_cpu_dtype();
}
inline void SetAutocast(c10::DeviceType device, bool enabled,
                        c10::ScalarType type) {
  if (device == c10::kCUDA) {
    at::autocast::set_enabled(enabled);
    at::autocast::set_autocast_gpu_dtype(type);
  } else {
    at::autocast::set_cpu_enabled(enabled);
    at::autocast::set_autocast_cpu_dtype(type);
  }
}

inline std::string OptimizerStateKey(const at::Tensor& parameter) {
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
}

// Not told by these: null.
inline void* NativeHandle(const c10::Stream&) { return nullptr; }

#endif

}  // namespace miniray::train::compat

#endif  // MINIRAY_TRAIN_LIBTORCH_COMPAT_H_
