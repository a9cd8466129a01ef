// Friedman's first benchmark for regression, a table whose noise is known.
//
//   y = 10 sin(pi x1 x2) + 20 (x3 - 0.5)^2 + 10 x4 + 5 x5 + noise
//
// with x1 to x10 uniform in [0, 1), of which the last five say nothing, and
// normal noise of variance 1: no model has a mean squared error below 1 on rows
// that it has not seen, but for chance.
//
// Source: Friedman, "Multivariate adaptive regression splines", Annals of
// Statistics 19(1), 1991, section 4.3.
//
// No LibTorch here.

#ifndef MINIRAY_ML_DATA_FRIEDMAN_H_
#define MINIRAY_ML_DATA_FRIEDMAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ml/data/csv_reader.h"

namespace miniray::ml {

// Columns x1 to x10 and y. The same rows for the same seed, as far as sin, cos
// and log are the same.
// Errors: INVALID_ARGUMENT, rows outside [1, 2^24].
absl::StatusOr<NumberTable> MakeFriedmanTable(int64_t rows, uint64_t seed);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_FRIEDMAN_H_
