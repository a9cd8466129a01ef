#include "ps/strategies/krum.h"

#include <numeric>

#include "ps/tensor_math.h"

namespace miniray::ps {

KrumStrategy::KrumStrategy(const StrategyOptions& options)
    : KrumFamily("krum", 2, options) {}

absl::StatusOr<NamedTensors> KrumStrategy::AggregateWith(
    absl::Span<const Contribution> contributions,
    absl::Span<const double> sums) {
  std::vector<size_t> pool(contributions.size());
  std::iota(pool.begin(), pool.end(), 0);
  const size_t best =
      KrumOrder(sums, pool.size(), pool, num_malicious()).front();
  return MeanOfModels(contributions.subspan(best, 1));
}

MINIRAY_SYNC_STRATEGY("krum", KrumStrategy);

}  // namespace miniray::ps
