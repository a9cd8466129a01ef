#include "ps/strategies/average.h"

#include <vector>

#include "ps/tensor_math.h"

namespace miniray::ps {

absl::StatusOr<NamedTensors> AverageStrategy::Aggregate(
    absl::Span<const Contribution> contributions) {
  const size_t n = contributions.size();
  return CombineModels(contributions,
                       std::vector<double>(n, 1.0 / static_cast<double>(n)));
}

MINIRAY_SYNC_STRATEGY("average", AverageStrategy);

}  // namespace miniray::ps
