#include "ps/strategies/weighted.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ps/tensor_math.h"

namespace miniray::ps {

absl::StatusOr<NamedTensors> WeightedStrategy::Aggregate(
    absl::Span<const Contribution> contributions) {
  finite_ = false;
  double largest = 0;
  for (const Contribution& contribution : contributions) {
    const double weight = contribution.weight;
    if (!std::isfinite(weight) || weight < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", contribution.worker_id, " has the weight ",
                       weight, "; weights must be finite and not negative"));
    }
    largest = std::max(largest, weight);
  }
  if (largest == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the weights of all ", contributions.size(),
                     " workers are 0; give one a weight above 0 with "
                     "SetWorkerWeight, or let its NumSamples return one"));
  }
  // Relative to the largest, so that no total overflows or vanishes.
  std::vector<double> coefficients;
  double total = 0;
  for (const Contribution& contribution : contributions) {
    coefficients.push_back(contribution.weight / largest);
    total += coefficients.back();
  }
  for (double& coefficient : coefficients) coefficient /= total;
  return CombineModels(contributions, coefficients, /*keep=*/0, /*kept=*/{},
                       &finite_);
}

MINIRAY_SYNC_STRATEGY("weighted", WeightedStrategy);

}  // namespace miniray::ps
