#include "ps/strategies/average.h"

#include "ps/tensor_math.h"

namespace miniray::ps {

absl::StatusOr<NamedTensors> AverageStrategy::Aggregate(
    absl::Span<const Contribution> contributions) {
  return MeanOfModels(contributions, &finite_);
}

MINIRAY_SYNC_STRATEGY("average", AverageStrategy);

}  // namespace miniray::ps
