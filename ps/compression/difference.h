// What of a model travels in compressed form: the difference to weights that
// both sides hold.
//
// Compressed are float32 tensors; all others, and those that the caller names,
// travel as they are. A compressed tensor travels under its own name as a
// vector of bytes (uint8): its values, row-major, as block_codec.h tells.

#ifndef MINIRAY_PS_COMPRESSION_DIFFERENCE_H_
#define MINIRAY_PS_COMPRESSION_DIFFERENCE_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/compression/compression.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// By tensor; undefined where a tensor is not compressed.
using TensorList = std::vector<at::Tensor>;

struct Difference {
  NamedTensors encoded;  // In shared memory, but for what is sent as it is.
  // If asked for: what the receiver, who adds it to `from`, will have. In
  // shared memory; those that are sent as they are, themselves.
  NamedTensors reached;
  // If asked for: what the compression has lost of (to - from) + owed. Where
  // that is infinite or NaN: 0.
  TensorList lost;
};

struct DifferenceRequest {
  CompressionOptions compression;  // Not kNone.
  // Models with the same names, shapes and element types, dense. from: null:
  // zeros.
  const NamedTensors* to = nullptr;
  const NamedTensors* from = nullptr;
  // Added to the difference: what earlier ones have lost. Null: nothing; nor is
  // it of tensors that are undefined.
  const TensorList* owed = nullptr;
  // By tensor: sent as it is. Empty: as its element type says.
  std::vector<bool> as_it_is;
  bool wants_reached = false;
  bool wants_lost = false;
};

// Encodes to - from + owed, on all cores. Throws what LibTorch throws.
Difference EncodeDifference(const DifferenceRequest& request);

// Returns base + what `encoded` holds, rounded once; tensors that were sent as
// they are, themselves. Throws what LibTorch throws.
//
// Errors: INVALID_ARGUMENT, `encoded` is no difference to a model like `base`.
absl::StatusOr<NamedTensors> ApplyDifference(
    const CompressionOptions& compression, const NamedTensors& encoded,
    const NamedTensors& base);

// The same where `from` was null: returns what `encoded` holds. like: tells the
// shapes and element types.
absl::StatusOr<NamedTensors> DecodeDifference(
    const CompressionOptions& compression, const NamedTensors& encoded,
    const NamedTensors& like);

// True if the models have the same names, shapes and element types.
bool SameLayout(const NamedTensors& a, const NamedTensors& b);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_COMPRESSION_DIFFERENCE_H_
