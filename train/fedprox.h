// FedProx: keeps a worker's parameters near those of the last synchronisation,
// so that workers with different data drift less far apart between two.
//
//   minimised = loss(w) + mu/2 * |w - w_global|^2
//
// The server's side is any mean, "average" or "weighted".
//
//   train::ProximalTerm proximal_{0.01};                // in the worker
//   ... SetWeights:  LoadStateDict(*model_, weights);
//                    proximal_.SetCenter(*model_);
//   ... each step:   loss.backward();
//                    proximal_.AddGradient(*model_);
//                    optimizer_.step();
//
// Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, Federated Optimization in
// Heterogeneous Networks.

#ifndef MINIRAY_TRAIN_FEDPROX_H_
#define MINIRAY_TRAIN_FEDPROX_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/nn/module.h"

namespace miniray::train {

// Not thread-safe.
class ProximalTerm {
 public:
  // mu: >= 0; 0 is plain training. Throws std::invalid_argument for others.
  explicit ProximalTerm(double mu);

  // Copies the module's parameters; they are w_global from now on. Buffers have
  // no part in it.
  void SetCenter(const torch::nn::Module& module);

  // Adds mu * (w - w_global) to the gradient of each parameter that has one.
  // Without a center it adds nothing: before the first synchronisation.
  //
  // Errors: FAILED_PRECONDITION, the center is of another model; then nothing
  // has changed.
  absl::Status AddGradient(torch::nn::Module& module) const;

  // mu/2 * |w - w_global|^2, as a number: for the metrics.
  // Errors: as of AddGradient.
  absl::StatusOr<double> Loss(const torch::nn::Module& module) const;

 private:
  absl::Status CheckModel(const std::vector<at::Tensor>& parameters) const;

  const double mu_;
  std::vector<at::Tensor> center_;  // By parameter; empty: none yet.
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FEDPROX_H_
