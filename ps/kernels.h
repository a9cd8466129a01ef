// The loops over the weights: plain memory in, plain memory out, one thread.
//
// Results are the same bits on every machine: sums run in the order of the
// inputs, and the AVX2 code, used where the CPU has it, does the same
// operations as the portable code.

#ifndef MINIRAY_PS_KERNELS_H_
#define MINIRAY_PS_KERNELS_H_

#include <cstdint>

#include "absl/types/span.h"

namespace miniray::ps {

// out[i] = sum over k of coefficients[k] * inputs[k][i], for i in [0, size), in
// one pass: products and sums in double, for float rounded once at the end. So
// coefficients that add up to 1 leave equal floats as they are.
//
// inputs: at least one; as many as coefficients. `out` may be one of them.
// Returns whether all of out is finite.
bool LinearCombination(absl::Span<const float* const> inputs,
                       absl::Span<const double> coefficients, int64_t size,
                       float* out);
bool LinearCombination(absl::Span<const double* const> inputs,
                       absl::Span<const double> coefficients, int64_t size,
                       double* out);

// Returns the sum over i of (a[i] - b[i])^2, in double; infinite or NaN if a
// value is. Eight partial sums, each of every eighth element, are added up at
// the end.
double SquaredDistance(const float* a, const float* b, int64_t size);
double SquaredDistance(const double* a, const double* b, int64_t size);

// Returns the index of the first value that is infinite or NaN, -1 if there is
// none.
int64_t FirstNonFinite(const float* values, int64_t size);
int64_t FirstNonFinite(const double* values, int64_t size);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_KERNELS_H_
