// "bulyan": workers that agree, then for each element those values that agree.
//
//   S       = t = n - 2 f workers, chosen one after the other: each is the one
//             that krum.h chooses among those left
//   weights = elementwise mean of the t - 2 f values of S that are closest to
//             their median
//
// for n workers, of which f = num_malicious may be broken, n >= 4 f + 3. As
// workers are taken out, Krum's n - f - 2 neighbours become fewer; one is the
// least. Floating-point tensors, parameters and buffers alike; all others: the
// maximum over S. With f = 0 that is the mean.
//
// A worker with a value that is infinite or NaN is infinitely far from all, so
// it is not chosen while f or fewer are broken.
//
// Option: num_malicious, at least 0, 1 if not given.
//
// El Mhamdi, Guerraoui, Rouault 2018, The Hidden Vulnerability of Distributed
// Learning in Byzantium.

#ifndef MINIRAY_PS_STRATEGIES_BULYAN_H_
#define MINIRAY_PS_STRATEGIES_BULYAN_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategies/krum_scores.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class BulyanStrategy : public KrumFamily {
 public:
  explicit BulyanStrategy(const StrategyOptions& options);

  absl::StatusOr<NamedTensors> AggregateWith(
      absl::Span<const Contribution> contributions,
      absl::Span<const double> sums) override;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_BULYAN_H_
