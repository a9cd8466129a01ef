// Weights that are serialized once and sent to many actors.

#ifndef MINIRAY_PS_ENCODED_WEIGHTS_H_
#define MINIRAY_PS_ENCODED_WEIGHTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "runtime/shm/shared_bytes.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

// As an argument it is the value that it was made from; all calls share one
// copy of the bytes, or none: those of tensors in shared memory. Immutable.
struct EncodedWeights {
  absl::Cord value;  // A serialized Value.

  // The weights, NamedTensors or a WeightMessage, must not change afterwards.
  template <class T>
  static absl::StatusOr<EncodedWeights> Of(const T& weights) {
    MR_ASSIGN_OR_RETURN(absl::Cord value, EncodeValue(ReadOnly<T>{weights}));
    return EncodedWeights{MoveToSharedMemory(std::move(value))};
  }
};

}  // namespace miniray::ps

namespace miniray {

template <>
struct Codec<ps::EncodedWeights> {
  static absl::Status Encode(const ps::EncodedWeights& weights,
                             WireWriter* out) {
    out->Raw(weights.value);
    return absl::OkStatus();
  }
};

}  // namespace miniray

#endif  // MINIRAY_PS_ENCODED_WEIGHTS_H_
