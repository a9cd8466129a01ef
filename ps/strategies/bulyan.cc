#include "ps/strategies/bulyan.h"

#include <algorithm>
#include <numeric>

#include "ps/model_pieces.h"
#include "ps/order_kernels.h"
#include "ps/tensor_math.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {

BulyanStrategy::BulyanStrategy(const StrategyOptions& options)
    : KrumFamily("bulyan", 4, options) {}

absl::StatusOr<NamedTensors> BulyanStrategy::AggregateWith(
    absl::Span<const Contribution> contributions,
    absl::Span<const double> sums) {
  const size_t n = contributions.size();
  const size_t malicious = static_cast<size_t>(num_malicious());
  std::vector<size_t> pool(n);
  std::iota(pool.begin(), pool.end(), 0);
  std::vector<size_t> chosen;
  while (chosen.size() < n - 2 * malicious) {
    chosen.push_back(KrumOrder(sums, n, pool, num_malicious()).front());
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
