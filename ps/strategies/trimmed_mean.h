// "trimmed_mean": the elementwise mean without the extremes.
//
//   weights[i] = mean over k of worker_k[i], without the `cut` smallest and the
//                `cut` largest values
//   cut        = beta * workers, rounded up, but such that one is left
//
// for floating-point tensors, parameters and buffers alike. All others: the
// maximum (a worker that lies can raise a counter, which moves no weight).
// Rounded up, because rounded down the default would cut nothing of four
// workers.
//
// NaN counts as plus infinity. So with at most `cut` workers broken the result
// is finite; with more the server refuses it.
//
// Option: beta, the share cut off on each side, in [0, 0.5), 0.2 if not given;
// 0 is "average".
//
// Yin, Chen, Ramchandran, Bartlett 2018, Byzantine-Robust Distributed Learning:
// Towards Optimal Statistical Rates.

#ifndef MINIRAY_PS_STRATEGIES_TRIMMED_MEAN_H_
#define MINIRAY_PS_STRATEGIES_TRIMMED_MEAN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class TrimmedMeanStrategy : public SyncStrategy {
 public:
  static std::vector<OptionSpec> Options();
  explicit TrimmedMeanStrategy(const StrategyOptions& options);

  // Cannot fail.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override;
  bool UsesServerWeights() const override { return false; }

 private:
  const double beta_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_TRIMMED_MEAN_H_
