// Lets at::Tensor travel: as a proto/tensor.proto Tensor.
//
// Dense tensors of every element type in DType, any shape; a non-contiguous one
// is made contiguous, one on a GPU is copied to the CPU and arrives on the CPU.
// Sparse, quantized and undefined tensors: INVALID_ARGUMENT.
//
// A tensor travels by value: what the receiver gets is what it held when the
// call was made (or the method returned). Its memory is sent without a copy
// only where nobody else holds it, as with a temporary; so
// `Call<&A::Set>(std::move(t))` spares the copy that `Call<&A::Set>(t)` makes.
// Between processes of one machine a large tensor is copied into shared memory
// once, and the receiver's is a view of that, whose pages are copied if they
// are written to. ReadOnly<at::Tensor> (runtime/wire/codec.h) spares all
// copies. Gradients, requires_grad and strides do not travel.

#ifndef MINIRAY_RUNTIME_TENSOR_TENSOR_CODEC_H_
#define MINIRAY_RUNTIME_TENSOR_TENSOR_CODEC_H_

#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "runtime/wire/codec.h"

namespace miniray {

template <>
struct Codec<at::Tensor> {
  static absl::Status Encode(const at::Tensor& tensor, WireWriter* out);
  static absl::Status Decode(const ValueView& view, at::Tensor* out);
};

// Parameters and buffers of a model by name, in the model's order.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_TENSOR_TENSOR_CODEC_H_
