// Element-wise operations over the same tensor of several workers, and over
// whole models. Deterministic: inputs count in their order.
//
// REQUIRES everywhere: at least one input; all inputs have one shape and
// element type and are dense. Inputs that are not contiguous or not on the CPU
// are copied. Throws what LibTorch throws (no memory).

#ifndef MINIRAY_PS_TENSOR_MATH_H_
#define MINIRAY_PS_TENSOR_MATH_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

// Real and complex floating-point tensors: those that can be averaged.
bool IsFloat(const at::Tensor& tensor);

// Sets *out to the sum of coefficients[k] * inputs[k]; see kernels.h for the
// precision. float16 and bfloat16 are computed in float32. The memory of *out
// is used again if shape and type fit; *out may be one of the inputs.
// REQUIRES: IsFloat.
void LinearCombination(absl::Span<const at::Tensor> inputs,
                       absl::Span<const double> coefficients, at::Tensor* out);

// Returns the elementwise maximum; of bools, "or".
at::Tensor Maximum(absl::Span<const at::Tensor> inputs);

// Returns tensor `index` of each contribution.
std::vector<at::Tensor> TensorsAt(absl::Span<const Contribution> contributions,
                                  size_t index);

// The common part of the linear strategies. Returns, for each tensor that is
// floating-point, keep * kept + the sum of coefficients[k] * contributions[k],
// and for every other one the maximum over the contributions. The result is in
// memory of its own, shared memory where there is some; large models are
// computed on all cores.
// REQUIRES: with keep != 0, `kept` has the contributions' names and shapes;
// else it is not read.
NamedTensors CombineModels(absl::Span<const Contribution> contributions,
                           absl::Span<const double> coefficients,
                           double keep = 0, const NamedTensors& kept = {});

}  // namespace miniray::ps

#endif  // MINIRAY_PS_TENSOR_MATH_H_
