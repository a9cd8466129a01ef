// "multi_krum": the mean of the workers that are closest to most of the others.
//
//   weights = mean of the m workers with the smallest scores of krum.h
//
// for n workers, of which f = num_malicious may be broken, n >= 2 f + 3, and
// m = num_selected, at most n - f. All floating-point tensors, parameters and
// buffers alike, are averaged; others are the maximum over the m workers.
//
// A worker with a value that is infinite or NaN is infinitely far from all, so
// it is not among the m while f or fewer are broken.
//
// Options: num_malicious, at least 0, 1 if not given; num_selected, at least 0,
// where 0, the default, stands for n - f.
//
// Blanchard, El Mhamdi, Guerraoui, Stainer 2017, Machine Learning with
// Adversaries: Byzantine Tolerant Gradient Descent.

#ifndef MINIRAY_PS_STRATEGIES_MULTI_KRUM_H_
#define MINIRAY_PS_STRATEGIES_MULTI_KRUM_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategies/krum_scores.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class MultiKrumStrategy : public KrumFamily {
 public:
  static std::vector<OptionSpec> Options();
  explicit MultiKrumStrategy(const StrategyOptions& options);

  // Enough to select num_selected good ones, too.
  absl::Status CheckWorkers(int64_t num_workers) const override;

  absl::StatusOr<NamedTensors> AggregateWith(
      absl::Span<const Contribution> contributions,
      absl::Span<const double> sums) override;

 private:
  const int64_t num_selected_;  // 0: all but num_malicious.
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_MULTI_KRUM_H_
