#include "ps/strategies/multi_krum.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

std::vector<OptionSpec> MultiKrumStrategy::Options() {
  std::vector<OptionSpec> options = KrumFamily::Options();
  options.push_back(
      {.name = "num_selected",
       .default_value = int64_t{0},
       .help = "how many workers are averaged; 0: all but num_malicious",
       .min = 0});
  return options;
}

MultiKrumStrategy::MultiKrumStrategy(const StrategyOptions& options)
    : KrumFamily("multi_krum", 2, options),
      num_selected_(*options.GetInt("num_selected", 0)) {}

absl::Status MultiKrumStrategy::CheckWorkers(int64_t num_workers) const {
  MR_RETURN_IF_ERROR(KrumFamily::CheckWorkers(num_workers));
  if (num_selected_ <= num_workers - num_malicious()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "strategy 'multi_krum' with num_selected=", num_selected_,
      " and num_malicious=", num_malicious(),
      " needs at least num_selected + num_malicious workers, and there are ",
      num_workers));
}

absl::StatusOr<NamedTensors> MultiKrumStrategy::AggregateWith(
    absl::Span<const Contribution> contributions,
    absl::Span<const double> sums) {
  const size_t n = contributions.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  order = KrumOrder(sums, n, order, num_malicious());
  order.resize(num_selected_ > 0 ? static_cast<size_t>(num_selected_)
                                 : n - static_cast<size_t>(num_malicious()));
  return MeanOfModels(Select(contributions, order));
}

MINIRAY_SYNC_STRATEGY("multi_krum", MultiKrumStrategy);

}  // namespace miniray::ps
