// "krum": the weights of the one worker that is closest to most of the others.
//
//   score(k) = sum of |worker_k - worker_j|^2 over the n - f - 2 closest others
//   weights  = worker_k with the smallest score, of equals the first
//
// for n workers, of which f = num_malicious may be broken, n >= 2 f + 3.
// Distances are over all floating-point tensors, parameters and buffers alike.
// All tensors, counters too, are those of the worker that was chosen.
//
// A worker with a value that is infinite or NaN is infinitely far from all, so
// it is not chosen while f or fewer are broken.
//
// Option: num_malicious, at least 0, 1 if not given.
//
// Blanchard, El Mhamdi, Guerraoui, Stainer 2017, Machine Learning with
// Adversaries: Byzantine Tolerant Gradient Descent.

#ifndef MINIRAY_PS_STRATEGIES_KRUM_H_
#define MINIRAY_PS_STRATEGIES_KRUM_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategies/krum_scores.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class KrumStrategy : public KrumFamily {
 public:
  explicit KrumStrategy(const StrategyOptions& options);

  absl::StatusOr<NamedTensors> AggregateWith(
      absl::Span<const Contribution> contributions,
      absl::Span<const double> sums) override;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_KRUM_H_
