// "momentum": the exponential moving average of the workers' mean, which damps
// what changes from one synchronisation to the next.
//
//   first:   weights = mean of the workers
//   then:    weights = momentum * weights + (1 - momentum) * mean
//
// for floating-point tensors, parameters and buffers alike, kept in their own
// element type. All others: the maximum over the workers.
//
// Option: momentum, in [0, 1), 0.9 if not given; 0 is "average".
//
// The average is the server's weights: there is no other state to save.

#ifndef MINIRAY_PS_STRATEGIES_MOMENTUM_H_
#define MINIRAY_PS_STRATEGIES_MOMENTUM_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/finite_result.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class MomentumStrategy : public SyncStrategy, public FiniteResult {
 public:
  static std::vector<OptionSpec> Options();
  explicit MomentumStrategy(const StrategyOptions& options);

  // Errors: INVALID_ARGUMENT, the model is not the one of the last call.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override;

  // The average starts from `weights` instead of the next mean; RestoreState
  // does no more.
  void Reset(const NamedTensors& weights) override;

  bool ResultIsFinite() const override { return finite_; }

 private:
  const double momentum_;
  NamedTensors average_;  // Empty before the first synchronisation.
  bool finite_ = false;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_MOMENTUM_H_
