#include "ps/run_strategy.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "ps/check_weights.h"
#include "ps/finite_result.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

absl::StatusOr<NamedTensors> RunStrategy(
    SyncStrategy& strategy, absl::string_view name, const NamedTensors& weights,
    absl::Span<const Contribution> contributions,
    absl::FunctionRef<absl::StatusOr<NamedTensors>()> aggregate,
    absl::FunctionRef<std::string(int)> worker_name) {
  const std::string who = absl::StrCat("strategy ", name);
  absl::StatusOr<NamedTensors> result;
  try {
    result = aggregate();
  } catch (const std::exception& error) {  // c10::Error, out of memory
    strategy.Reset(weights);               // Who knows how far it came.
    return absl::InternalError(absl::StrCat(who, " threw: ", error.what()));
  }
  if (!result.ok()) return Annotate(result.status(), who);
  absl::Status status = CheckForm(*result, "its result");
  const bool formed = status.ok();
  const auto* const knows = dynamic_cast<const FiniteResult*>(&strategy);
  if (formed && (knows == nullptr || !knows->ResultIsFinite())) {
    status = CheckFinite(*result, "its result");
  }
  const bool finite = !formed || status.ok();
  if (status.ok()) {
    status =
        CheckLayout(*result, ModelLayout::Of(contributions.front().tensors),
                    "its result", "the contributions");
  }
  if (status.ok()) return result;
  strategy.Reset(weights);
  if (!finite) {  // Because of whom?
    for (const Contribution& contribution : contributions) {
      MR_RETURN_IF_ERROR(CheckFinite(contribution.tensors,
                                     worker_name(contribution.worker_id)));
    }
  }
  return absl::InternalError(absl::StrCat(who, ": ", status.message()));
}

absl::Status RestoreStrategy(SyncStrategy& strategy, const StrategyState& state,
                             const NamedTensors& weights) {
  try {
    return strategy.RestoreState(state, weights);
  } catch (const std::exception& error) {  // c10::Error
    return absl::InternalError(error.what());
  }
}

}  // namespace miniray::ps
