#include "ml/metrics/frechet_distance.h"

#include <algorithm>
#include <exception>
#include <string>
#include <tuple>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ml/data/describe_tensor.h"
#include "ml/data/exception_text.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// Of the largest eigenvalue: more than rounding ever makes of 0.
constexpr double kNegativeTolerance = 1e-6;
// Of the largest entry.
constexpr double kAsymmetryTolerance = 1e-8;

double LargestOf(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

absl::Status CheckCovariance(const at::Tensor& matrix) {
  if (!matrix.defined() || matrix.scalar_type() != at::kDouble ||
      matrix.dim() != 2 || matrix.size(0) != matrix.size(1) ||
      matrix.numel() == 0 || !matrix.device().is_cpu()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a covariance is ", DescribeTensor(matrix),
                     "; expected float64 [F, F] on the CPU"));
  }
  if (!at::isfinite(matrix).all().item<bool>()) {
    return absl::InvalidArgumentError(
        "a covariance has values that are infinite or not a number");
  }
  const double asymmetry = LargestOf(matrix - matrix.t());
  if (asymmetry > kAsymmetryTolerance * LargestOf(matrix)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a covariance is not symmetric: entries differ by ", asymmetry));
  }
  return absl::OkStatus();
}

// Of a covariance.
absl::Status CheckEigenvalues(const at::Tensor& eigenvalues) {
  const double smallest = eigenvalues.min().item<double>();
  if (smallest < -kNegativeTolerance * LargestOf(eigenvalues)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a covariance has the eigenvalue ", smallest, ", and others up to ",
        LargestOf(eigenvalues), "; expected none below 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> RootOf(const at::Tensor& covariance) {
  MR_RETURN_IF_ERROR(CheckCovariance(covariance));
  const auto [values, vectors] = at::linalg_eigh(covariance);
  MR_RETURN_IF_ERROR(CheckEigenvalues(values));
  return at::mm(vectors * values.clamp_min(0).sqrt(), vectors.t());
}

absl::StatusOr<double> Distance(const Gaussian& a, const Gaussian& b) {
  for (const Gaussian* gaussian : {&a, &b}) {
    MR_RETURN_IF_ERROR(CheckCovariance(gaussian->covariance));
    const at::Tensor& mean = gaussian->mean;
    if (!mean.defined() || mean.scalar_type() != at::kDouble ||
        mean.dim() != 1 || mean.size(0) != gaussian->covariance.size(0) ||
        !mean.device().is_cpu() || !at::isfinite(mean).all().item<bool>()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a mean is ", DescribeTensor(mean), "; expected finite float64 [",
          gaussian->covariance.size(0), "] on the CPU"));
    }
  }
  if (a.mean.size(0) != b.mean.size(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Gaussians of ", a.mean.size(0), " and ", b.mean.size(0),
                     " features; expected as many"));
  }
  MR_ASSIGN_OR_RETURN(const at::Tensor root, RootOf(a.covariance));
  MR_RETURN_IF_ERROR(CheckEigenvalues(at::linalg_eigvalsh(b.covariance)));
  const at::Tensor product = at::mm(at::mm(root, b.covariance), root);
  // Both are covariances, so what is negative here is rounding, which is
  // relative to them and not to the product: that may be nothing else.
  const at::Tensor roots =
      at::linalg_eigvalsh((product + product.t()) / 2).clamp_min(0).sqrt();
  const double distance = (a.mean - b.mean).square().sum().item<double>() +
                          a.covariance.trace().item<double>() +
                          b.covariance.trace().item<double>() -
                          2 * roots.sum().item<double>();
  return std::max(distance, 0.0);
}

absl::Status LibTorchError(const std::exception& error) {
  return absl::InternalError(
      absl::StrCat("LibTorch finds no eigenvalues: ", FirstLine(error)));
}

}  // namespace

absl::StatusOr<at::Tensor> SymmetricRoot(const at::Tensor& covariance) {
  try {
    return RootOf(covariance);
  } catch (const std::exception& error) {
    return LibTorchError(error);
  }
}

absl::StatusOr<double> FrechetDistance(const Gaussian& a, const Gaussian& b) {
  try {
    return Distance(a, b);
  } catch (const std::exception& error) {
    return LibTorchError(error);
  }
}

}  // namespace miniray::ml
