// "median": the elementwise median, which a minority of workers cannot move
// beyond what the others have. Takes no options.
//
//   weights[i] = median over k of worker_k[i]
//
// of an even number of workers the mean of the two in the middle, for
// floating-point tensors, parameters and buffers alike. All others: the maximum
// (a worker that lies can raise a counter, which moves no weight).
//
// NaN counts as plus infinity. So with fewer than half of the workers broken
// the result is finite; with more the server refuses it.
//
// Yin, Chen, Ramchandran, Bartlett 2018, Byzantine-Robust Distributed Learning:
// Towards Optimal Statistical Rates.

#ifndef MINIRAY_PS_STRATEGIES_MEDIAN_H_
#define MINIRAY_PS_STRATEGIES_MEDIAN_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class MedianStrategy : public SyncStrategy {
 public:
  // Cannot fail.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override;
  bool UsesServerWeights() const override { return false; }
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_MEDIAN_H_
