// Tensor memory whose size comes from a file or a flag.

#ifndef MINIRAY_ML_DATA_TENSOR_ALLOCATION_H_
#define MINIRAY_ML_DATA_TENSOR_ALLOCATION_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::ml {

// Returns a tensor uint8 [size] with undefined contents.
//
// Errors: ResourceExhausted, with `what` and the size, where LibTorch would
// throw.
absl::StatusOr<at::Tensor> AllocateBytes(int64_t size, absl::string_view what);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_TENSOR_ALLOCATION_H_
