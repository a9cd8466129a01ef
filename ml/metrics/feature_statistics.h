// Mean and covariance of many feature vectors, gathered piece by piece.
//
// Shape letters: N vectors, F features.

#ifndef MINIRAY_ML_METRICS_FEATURE_STATISTICS_H_
#define MINIRAY_ML_METRICS_FEATURE_STATISTICS_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ml {

// 32 MiB for 2048 features. Copies share tensors, which are never written to:
// Add and Merge make new ones. Not thread-safe.
//
//   FeatureStatistics statistics;
//   MR_RETURN_IF_ERROR(statistics.Add(features));   // As often as need be.
//   MR_RETURN_IF_ERROR(statistics.Merge(of_another_worker));
//   MR_ASSIGN_OR_RETURN(const at::Tensor covariance, statistics.Covariance());
struct FeatureStatistics {
  int64_t count = 0;
  // Both undefined as long as nothing was added.
  at::Tensor mean;     // float64 [F].
  at::Tensor scatter;  // float64 [F, F]: sum of (x - mean)(x - mean)^T.

  // 0 as long as nothing was added.
  int64_t num_features() const { return mean.defined() ? mean.size(0) : 0; }

  // Adds N >= 1 vectors, floating [N, F], on any device.
  // Errors: INVALID_ARGUMENT, another type or shape than that, another F than
  // before, F above kMaxFeatures, a value that is not finite.
  absl::Status Add(const at::Tensor& features);

  // As if what was added to `other` had been added here, but for rounding.
  // Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm
  // for computing sample variances", 1979.
  // Errors: INVALID_ARGUMENT, another F; those of Validate for either.
  absl::Status Merge(const FeatureStatistics& other);

  // The unbiased one, float64 [F, F]. With N <= F it is singular, which is
  // nothing that FrechetDistance could not take.
  // Errors: INVALID_ARGUMENT, less than two vectors.
  absl::StatusOr<at::Tensor> Covariance() const;

  // Checks what came from a file or another process.
  // Errors: INVALID_ARGUMENT, what is not as the comments on the members say,
  // or not finite.
  absl::Status Validate() const;
};
MINIRAY_STRUCT(FeatureStatistics, count, mean, scatter);

inline constexpr int64_t kMaxFeatures = 8192;  // 512 MiB of scatter.

}  // namespace miniray::ml

#endif  // MINIRAY_ML_METRICS_FEATURE_STATISTICS_H_
