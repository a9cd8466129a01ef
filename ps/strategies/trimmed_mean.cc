#include "ps/strategies/trimmed_mean.h"

#include <algorithm>
#include <cmath>

#include "ps/model_pieces.h"
#include "ps/order_kernels.h"
#include "ps/tensor_math.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {
namespace {

constexpr double kDefaultBeta = 0.2;

// Of `n` workers, how many are cut off on each side.
size_t Cut(double beta, size_t n) {
  // 0.07 * 100 is a little more than 7.
  constexpr double kRounding = 1e-9;
  const auto wanted = static_cast<size_t>(
      std::max(0.0, std::ceil(beta * static_cast<double>(n) - kRounding)));
  return std::min(wanted, (n - 1) / 2);
}

}  // namespace

std::vector<OptionSpec> TrimmedMeanStrategy::Options() {
  return {{.name = "beta",
           .default_value = kDefaultBeta,
           .help = "share of the workers cut off on each side",
           .min = 0,
           .max = 0.5,
           .max_allowed = false}};
}

TrimmedMeanStrategy::TrimmedMeanStrategy(const StrategyOptions& options)
    : beta_(*options.GetDouble("beta", kDefaultBeta)) {}

absl::StatusOr<NamedTensors> TrimmedMeanStrategy::Aggregate(
    absl::Span<const Contribution> contributions) {
  const size_t cut = Cut(beta_, contributions.size());
  NamedTensors result = EmptySharedTensors(contributions.front().tensors);
  const auto work = [&](const auto& piece) {
    TrimmedMean(piece.read, cut, piece.size, piece.written.front());
  };
  ForEachPiece(ModelsOf(contributions), {&result}, work, work);
  SetMaxima(contributions, &result);
  return result;
}

MINIRAY_SYNC_STRATEGY("trimmed_mean", TrimmedMeanStrategy);

}  // namespace miniray::ps
