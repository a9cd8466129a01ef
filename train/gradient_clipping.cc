#include "train/gradient_clipping.h"

#include <algorithm>
#include <cmath>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/isfinite.h"
#include "ATen/ops/linalg_vector_norm.h"

namespace miniray::train {

bool AllFinite(const std::vector<at::Tensor>& gradients) {
  return std::all_of(gradients.begin(), gradients.end(),
                     [](const at::Tensor& gradient) {
                       return at::isfinite(gradient).all().item<bool>();
                     });
}

double GradientNorm(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const at::Tensor& gradient : gradients) {
    const at::ScalarType type =
        gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const double norm =
        at::linalg_vector_norm(gradient, 2, at::OptionalIntArrayRef(),
                               /*keepdim=*/false, type)
            .item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

void ScaleGradients(const std::vector<at::Tensor>& gradients, double factor) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : gradients) gradient.mul_(factor);
}

double ClipByNorm(const std::vector<at::Tensor>& gradients, double max_norm) {
  const double norm = GradientNorm(gradients);
  const double factor = max_norm / (norm + 1e-6);
  if (std::isfinite(norm) && factor < 1) ScaleGradients(gradients, factor);
  return norm;
}

void ClipByValue(const std::vector<at::Tensor>& gradients, double max_value) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : gradients) {
    gradient.clamp_(-max_value, max_value);
  }
}

}  // namespace miniray::train
