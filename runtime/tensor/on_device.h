// Tensors that arrive where the method wants them: on the actor's GPU.
//
//   absl::Status Step(const OnDevice<at::Tensor>& x);  // x.value is on cuda:0.
//   ...
//   actor.Call<&A::Step>(batch);  // From whichever device.

#ifndef MINIRAY_RUNTIME_TENSOR_ON_DEVICE_H_
#define MINIRAY_RUNTIME_TENSOR_ON_DEVICE_H_

#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"

namespace miniray {

// An at::Tensor, NamedTensors or std::vector<at::Tensor> that arrives on the
// first CUDA device that the receiving process sees, which is the first that an
// actor was given (ActorContext::gpu_ids); on the CPU where it sees none. It
// travels through the CPU's memory, and is T on the wire, so either side may
// use it alone.
//
// Errors, of the call or of Get: FAILED_PRECONDITION, the device has no room.
template <class T>
struct OnDevice {
  OnDevice() = default;
  OnDevice(T tensors) : value(std::move(tensors)) {}  // NOLINT: as T is.

  T value;
};

namespace internal {

c10::Device ReceivingDevice();
// For tests, where there is no GPU; nullopt: as it is. Of the whole process.
void SetReceivingDevice(std::optional<c10::Device> device);

absl::Status MoveTo(c10::Device device, at::Tensor* tensor);
absl::Status MoveTo(c10::Device device, std::vector<at::Tensor>* tensors);
absl::Status MoveTo(c10::Device device, NamedTensors* tensors);

}  // namespace internal

template <class T>
struct Codec<OnDevice<T>> {
  static absl::Status Encode(const OnDevice<T>& value, WireWriter* out) {
    return Codec<T>::Encode(value.value, out);
  }
  static absl::Status Decode(const ValueView& view, OnDevice<T>* out) {
    const c10::Device device = internal::ReceivingDevice();
    if (device.is_cpu()) return Codec<T>::Decode(view, &out->value);
    {
      const internal::ReadOnlyScope scope;  // What is on the way is only read.
      MR_RETURN_IF_ERROR(Codec<T>::Decode(view, &out->value));
    }
    return internal::MoveTo(device, &out->value);
  }
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_TENSOR_ON_DEVICE_H_
