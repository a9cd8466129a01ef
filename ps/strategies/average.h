// "average": the mean of all workers. Takes no options.
//
// Floating-point tensors, parameters and buffers (running statistics) alike:
// the arithmetic mean. All others: the maximum.

#ifndef MINIRAY_PS_STRATEGIES_AVERAGE_H_
#define MINIRAY_PS_STRATEGIES_AVERAGE_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/finite_result.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class AverageStrategy : public SyncStrategy, public FiniteResult {
 public:
  // Cannot fail.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override;
  bool UsesServerWeights() const override { return false; }

  bool PassesOnNonFinite() const override { return true; }
  bool ResultIsFinite() const override { return finite_; }

 private:
  bool finite_ = false;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_AVERAGE_H_
