#include "ps/strategies/krum.h"

#include <numeric>

#include "ps/strategies/krum_scores.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

std::vector<OptionSpec> KrumStrategy::Options() {
  return {NumMaliciousOption()};
}

KrumStrategy::KrumStrategy(const StrategyOptions& options)
    : num_malicious_(NumMalicious(options)) {}

absl::Status KrumStrategy::CheckWorkers(int64_t num_workers) const {
  return CheckMajority("krum", num_workers, 2, num_malicious_);
}

absl::StatusOr<std::vector<double>> KrumStrategy::Sums(
    absl::Span<const Contribution> contributions) {
  MR_RETURN_IF_ERROR(CheckWorkers(static_cast<int64_t>(contributions.size())));
  return PairDistances(contributions);
}

absl::StatusOr<NamedTensors> KrumStrategy::AggregateWith(
    absl::Span<const Contribution> contributions,
    absl::Span<const double> sums) {
  std::vector<size_t> pool(contributions.size());
  std::iota(pool.begin(), pool.end(), 0);
  const size_t best =
      KrumOrder(sums, pool.size(), pool, num_malicious_).front();
  return MeanOfModels(contributions.subspan(best, 1));
}

MINIRAY_SYNC_STRATEGY("krum", KrumStrategy);

}  // namespace miniray::ps
