// The Frechet distance of two Gaussians, the D in FID.

#ifndef MINIRAY_ML_METRICS_FRECHET_DISTANCE_H_
#define MINIRAY_ML_METRICS_FRECHET_DISTANCE_H_

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"

namespace miniray::ml {

struct Gaussian {
  at::Tensor mean;        // float64 [F].
  at::Tensor covariance;  // float64 [F, F], symmetric, no negative eigenvalue.
};

// Returns the squared distance, as FID is stated:
//
//   |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2))
//
// C1 C2 is not symmetric, but has the eigenvalues of the symmetric matrix
// C1^(1/2) C2 C1^(1/2), from which the trace of its root comes. In float64, in
// time that grows with F^3. Covariances may be singular, as they are with fewer
// images than features. Eigenvalues that rounding has made negative count as 0,
// and so does such a distance.
//
// Source: Heusel et al., "GANs Trained by a Two Time-Scale Update Rule Converge
// to a Local Nash Equilibrium", 2017.
//
// Errors: INVALID_ARGUMENT, another type or shape than above, different F,
// values that are not finite, or a matrix that is no covariance: not symmetric,
// or with an eigenvalue below -1e-6 of its largest. INTERNAL, LibTorch finds no
// eigenvalues.
absl::StatusOr<double> FrechetDistance(const Gaussian& a, const Gaussian& b);

// Returns the symmetric root R of a covariance, R R = covariance. Errors: as
// above.
absl::StatusOr<at::Tensor> SymmetricRoot(const at::Tensor& covariance);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_METRICS_FRECHET_DISTANCE_H_
