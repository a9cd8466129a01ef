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

// Returns the elementwise maximum; of bools, "or".
at::Tensor Maximum(absl::Span<const at::Tensor> inputs);

// Returns tensor `index` of each contribution.
std::vector<at::Tensor> TensorsAt(absl::Span<const Contribution> contributions,
                                  size_t index);

// Sets each tensor of *out that is not floating-point to the maximum over the
// contributions; *out has their names and shapes.
void SetMaxima(absl::Span<const Contribution> contributions, NamedTensors* out);

// The common part of the linear strategies. Returns, for each tensor that is
// floating-point, keep * kept + the sum of coefficients[k] * contributions[k],
// and for every other one the maximum over the contributions; kernels.h tells
// the precision. The result is in memory of its own, shared memory where there
// is some; large models are computed on all cores.
// finite: if not null, set to whether all values of the result are known to be
// finite; false where one is not, and for float16 and bfloat16, to which it is
// converted afterwards.
// REQUIRES: with keep != 0, `kept` has the contributions' names and shapes;
// else it is not read.
NamedTensors CombineModels(absl::Span<const Contribution> contributions,
                           absl::Span<const double> coefficients,
                           double keep = 0, const NamedTensors& kept = {},
                           bool* finite = nullptr);

// CombineModels with the same coefficient for all: their mean.
NamedTensors MeanOfModels(absl::Span<const Contribution> contributions,
                          bool* finite = nullptr);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_TENSOR_MATH_H_
