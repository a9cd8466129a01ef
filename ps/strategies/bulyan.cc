#include "ps/strategies/bulyan.h"

#include <algorithm>
#include <numeric>

#include "ps/model_pieces.h"
#include "ps/order_kernels.h"
#include "ps/strategies/krum_scores.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {

std::vector<OptionSpec> BulyanStrategy::Options() {
  return {NumMaliciousOption()};
}

BulyanStrategy::BulyanStrategy(const StrategyOptions& options)
    : num_malicious_(NumMalicious(options)) {}

absl::Status BulyanStrategy::CheckWorkers(int64_t num_workers) const {
  return CheckMajority("bulyan", num_workers, 4, num_malicious_);
}

absl::StatusOr<std::vector<double>> BulyanStrategy::Sums(
    absl::Span<const Contribution> contributions) {
  MR_RETURN_IF_ERROR(CheckWorkers(static_cast<int64_t>(contributions.size())));
  return PairDistances(contributions);
}

absl::StatusOr<NamedTensors> BulyanStrategy::AggregateWith(
    absl::Span<const Contribution> contributions,
    absl::Span<const double> sums) {
  const size_t n = contributions.size();
  const size_t malicious = static_cast<size_t>(num_malicious_);
  std::vector<size_t> pool(n);
  std::iota(pool.begin(), pool.end(), 0);
  std::vector<size_t> chosen;
  while (chosen.size() < n - 2 * malicious) {
    chosen.push_back(KrumOrder(sums, n, pool, num_malicious_).front());
    pool.erase(std::find(pool.begin(), pool.end(), chosen.back()));
  }
  const std::vector<Contribution> selected = Select(contributions, chosen);
  const size_t keep = selected.size() - 2 * malicious;
  NamedTensors result = EmptySharedTensors(selected.front().tensors);
  const auto work = [&](const auto& piece) {
    MeanAroundMedian(piece.read, keep, piece.size, piece.written.front());
  };
  ForEachPiece(ModelsOf(selected), {&result}, work, work);
  SetMaxima(selected, &result);
  return result;
}

MINIRAY_SYNC_STRATEGY("bulyan", BulyanStrategy);

}  // namespace miniray::ps
