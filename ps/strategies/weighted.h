// "weighted": the mean of all workers, each with its weight. Takes no options.
//
//   weights = sum of weight_k * worker_k / sum of weight_k
//
// for floating-point tensors, parameters and buffers alike. All others: the
// maximum, over workers of weight 0 too.
//
// weight_k is the number of samples that the worker tells (NumSamples), so that
// this is federated averaging (McMahan et al. 2017, Communication-Efficient
// Learning of Deep Networks from Decentralized Data). Once SetWorkerWeight was
// called for any worker, it is what was set there, and 1 for the others. Where
// it was not, and a worker's class has no NumSamples, a synchronisation is an
// error: a plain mean is "average".

#ifndef MINIRAY_PS_STRATEGIES_WEIGHTED_H_
#define MINIRAY_PS_STRATEGIES_WEIGHTED_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/finite_result.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class WeightedStrategy : public SyncStrategy, public FiniteResult {
 public:
  // Errors: INVALID_ARGUMENT, a weight is negative, infinite or NaN.
  // FAILED_PRECONDITION, all weights are zero.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override;
  bool UsesServerWeights() const override { return false; }

  bool UsesWorkerWeights() const override { return true; }
  // Those of workers of weight 0 too: 0 times infinity is NaN.
  bool PassesOnNonFinite() const override { return true; }
  bool ResultIsFinite() const override { return finite_; }

 private:
  bool finite_ = false;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_WEIGHTED_H_
