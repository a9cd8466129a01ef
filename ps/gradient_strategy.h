// Strategies that are given gradients instead of weights: optimizers on the
// server.

#ifndef MINIRAY_PS_GRADIENT_STRATEGY_H_
#define MINIRAY_PS_GRADIENT_STRATEGY_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/sync_strategy.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// Its contributions look like the model: for each parameter the gradient of the
// loss, for each buffer (TensorInfo::is_buffer) and each tensor that is not
// floating-point the value that the worker has now. Reset gives it the weights
// to start from.
class GradientStrategy : public SyncStrategy {
 public:
  // Returns the weights after one step with the mean of the gradients.
  //
  // contributions: as for Aggregate.
  // lr_scale: in (0, 1]; the learning rate of this step is so many times the
  //   one that the options say.
  // Errors: FAILED_PRECONDITION, there are no weights to start from.
  //   INVALID_ARGUMENT, gradients of another model. Nothing has changed then.
  virtual absl::StatusOr<NamedTensors> Step(
      absl::Span<const Contribution> contributions, double lr_scale) = 0;

  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) final {
    return Step(contributions, 1);
  }

  bool TakesGradients() const final { return true; }
  bool UsesStart() const final { return true; }
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_GRADIENT_STRATEGY_H_
