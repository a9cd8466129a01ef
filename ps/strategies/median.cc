#include "ps/strategies/median.h"

#include "ps/model_pieces.h"
#include "ps/order_kernels.h"
#include "ps/tensor_math.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {

absl::StatusOr<NamedTensors> MedianStrategy::Aggregate(
    absl::Span<const Contribution> contributions) {
  const size_t cut = (contributions.size() - 1) / 2;
  NamedTensors result = EmptySharedTensors(contributions.front().tensors);
  const auto work = [&](const auto& piece) {
    TrimmedMean(piece.read, cut, piece.size, piece.written.front());
  };
  ForEachPiece(ModelsOf(contributions), {&result}, work, work);
  SetMaxima(contributions, &result);
  return result;
}

MINIRAY_SYNC_STRATEGY("median", MedianStrategy);

}  // namespace miniray::ps
