#include "ps/strategies/multi_krum.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "ps/strategies/krum_scores.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

std::vector<OptionSpec> MultiKrumStrategy::Options() {
  return {NumMaliciousOption(),
          {.name = "num_selected",
           .default_value = int64_t{0},
           .help = "how many workers are averaged; 0: all but num_malicious",
           .min = 0}};
}

MultiKrumStrategy::MultiKrumStrategy(const StrategyOptions& options)
    : num_malicious_(NumMalicious(options)),
      num_selected_(*options.GetInt("num_selected", 0)) {}

absl::Status MultiKrumStrategy::CheckWorkers(int64_t num_workers) const {
  MR_RETURN_IF_ERROR(
      CheckMajority("multi_krum", num_workers, 2, num_malicious_));
  if (num_selected_ <= num_workers - num_malicious_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "strategy 'multi_krum' with num_selected=", num_selected_,
      " and num_malicious=", num_malicious_,
      " needs at least num_selected + num_malicious workers, and there are ",
      num_workers));
}

absl::StatusOr<std::vector<double>> MultiKrumStrategy::Sums(
    absl::Span<const Contribution> contributions) {
  MR_RETURN_IF_ERROR(CheckWorkers(static_cast<int64_t>(contributions.size())));
  return PairDistances(contributions);
}

absl::StatusOr<NamedTensors> MultiKrumStrategy::AggregateWith(
    absl::Span<const Contribution> contributions,
    absl::Span<const double> sums) {
  const size_t n = contributions.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  order = KrumOrder(sums, n, order, num_malicious_);
  order.resize(num_selected_ > 0 ? static_cast<size_t>(num_selected_)
                                 : n - static_cast<size_t>(num_malicious_));
  return MeanOfModels(Select(contributions, order));
}

MINIRAY_SYNC_STRATEGY("multi_krum", MultiKrumStrategy);

}  // namespace miniray::ps
