#include "train/fedprox.h"

#include <cmath>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "torch/utils.h"

namespace miniray::train {

ProximalTerm::ProximalTerm(double mu) : mu_(mu) {
  if (!std::isfinite(mu) || mu < 0) {
    throw std::invalid_argument(
        absl::StrCat("FedProx's mu must be finite and at least 0, got ", mu));
  }
}

void ProximalTerm::SetCenter(const torch::nn::Module& module) {
  center_.clear();
  for (const at::Tensor& parameter : module.parameters()) {
    center_.push_back(parameter.detach().clone());
  }
}

absl::Status ProximalTerm::AddGradient(torch::nn::Module& module) const {
  const std::vector<at::Tensor> parameters = module.parameters();
  const absl::Status status = CheckModel(parameters);
  if (!status.ok()) return status;
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < center_.size(); ++i) {
    at::Tensor gradient = parameters[i].grad();
    if (!gradient.defined()) continue;
    gradient.add_(parameters[i] - center_[i], mu_);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> ProximalTerm::Loss(
    const torch::nn::Module& module) const {
  const std::vector<at::Tensor> parameters = module.parameters();
  const absl::Status status = CheckModel(parameters);
  if (!status.ok()) return status;
  const torch::NoGradGuard no_grad;
  double sum = 0;
  for (size_t i = 0; i < center_.size(); ++i) {
    sum += (parameters[i] - center_[i]).square().sum().item<double>();
  }
  return mu_ / 2 * sum;
}

absl::Status ProximalTerm::CheckModel(
    const std::vector<at::Tensor>& parameters) const {
  if (center_.empty()) return absl::OkStatus();
  bool same = parameters.size() == center_.size();
  for (size_t i = 0; same && i < center_.size(); ++i) {
    same = parameters[i].sizes() == center_[i].sizes();
  }
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "FedProx's center is of another model; call SetCenter with this one");
}

}  // namespace miniray::train
