#include "ps/strategies/momentum.h"

#include "absl/strings/str_cat.h"
#include "ps/check_weights.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

constexpr double kDefaultMomentum = 0.9;

}  // namespace

std::vector<OptionSpec> MomentumStrategy::Options() {
  return {{.name = "momentum",
           .default_value = kDefaultMomentum,
           .help = "share of the earlier weights that a synchronisation keeps",
           .min = 0,
           .max = 1,
           .max_allowed = false}};
}

MomentumStrategy::MomentumStrategy(const StrategyOptions& options)
    : momentum_(*options.GetDouble("momentum", kDefaultMomentum)) {}

absl::StatusOr<NamedTensors> MomentumStrategy::Aggregate(
    absl::Span<const Contribution> contributions) {
  const bool first = average_.empty();
  if (!first) {
    const Contribution& contribution = contributions.front();
    MR_RETURN_IF_ERROR(CheckLayout(
        contribution.tensors, ModelLayout::Of(average_),
        absl::StrCat("worker ", contribution.worker_id), "the moving average"));
  }
  const double keep = first ? 0 : momentum_;
  const size_t n = contributions.size();
  average_ =
      CombineModels(contributions,
                    std::vector<double>(n, (1 - keep) / static_cast<double>(n)),
                    keep, average_, &finite_);
  return average_;
}

void MomentumStrategy::Reset(const NamedTensors& weights) {
  average_ = weights;
}

MINIRAY_SYNC_STRATEGY("momentum", MomentumStrategy);

}  // namespace miniray::ps
