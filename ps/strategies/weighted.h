// "weighted": the mean of all workers, each with the weight that
// SetWorkerWeight gave it (1 if none), such as its number of samples. Takes no
// options.
//
// Floating-point tensors, parameters and buffers alike:
//   sum of weight_k * tensor_k / sum of weight_k.
// All others: the maximum, over workers of weight 0 too.

#ifndef MINIRAY_PS_STRATEGIES_WEIGHTED_H_
#define MINIRAY_PS_STRATEGIES_WEIGHTED_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class WeightedStrategy : public SyncStrategy {
 public:
  // Errors: INVALID_ARGUMENT, a weight is negative, infinite or NaN.
  // FAILED_PRECONDITION, all weights are zero.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override;

  bool UsesWorkerWeights() const override { return true; }
  // Those of workers of weight 0 too: 0 times infinity is NaN.
  bool PassesOnNonFinite() const override { return true; }
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_WEIGHTED_H_
