// Loops over the weights that sort, element by element, what several workers
// have there: plain memory in, plain memory out, one thread.
//
// They stand what a broken worker may send: NaN counts as plus infinity, so it
// is among the largest. Results are the same bits on every machine: sorting
// rounds nothing, and sums are formed in double from the smallest value up.

#ifndef MINIRAY_PS_ORDER_KERNELS_H_
#define MINIRAY_PS_ORDER_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace miniray::ps {

// Sets out[i], for i in [0, size), to the mean of what is left of
// inputs[0][i], inputs[1][i], ... without the `cut` smallest and the `cut`
// largest of them, in one pass. With cut = (inputs.size() - 1) / 2 that is the
// median: of an even number of inputs the mean of the two in the middle.
//
// Up to 16 floats are sorted in registers where the CPU has AVX2.
//
// REQUIRES: 2 * cut < inputs.size(). `out` is none of the inputs.
void TrimmedMean(absl::Span<const float* const> inputs, size_t cut,
                 int64_t size, float* out);
void TrimmedMean(absl::Span<const double* const> inputs, size_t cut,
                 int64_t size, double* out);

// Sets out[i] to the mean of the `keep` values that are closest to the median
// of inputs[0][i], inputs[1][i], ...; of two that are equally far the smaller
// one counts as closer.
//
// REQUIRES: 1 <= keep <= inputs.size(). `out` is none of the inputs.
void MeanAroundMedian(absl::Span<const float* const> inputs, size_t keep,
                      int64_t size, float* out);
void MeanAroundMedian(absl::Span<const double* const> inputs, size_t keep,
                      int64_t size, double* out);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_ORDER_KERNELS_H_
