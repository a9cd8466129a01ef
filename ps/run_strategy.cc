#include "ps/run_strategy.h"

#include <exception>

#include "ATen/core/Tensor.h"
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
  const auto start_anew = [&](const absl::Status& error) {
    const absl::Status reset = ResetStrategy(strategy, weights);
    if (reset.ok()) return error;
    return absl::Status(error.code(), absl::StrCat(error.message(), "; then ",
                                                   reset.message()));
  };
  absl::StatusOr<NamedTensors> result;
  const absl::Status ran = Guarded(who, [&] {
    result = aggregate();
    return absl::OkStatus();
  });
  if (!ran.ok()) return start_anew(ran);  // Who knows how far it came.
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
  status = absl::InternalError(absl::StrCat(who, ": ", status.message()));
  if (!finite) {  // Because of whom?
    for (const Contribution& contribution : contributions) {
      const absl::Status blamed = CheckFinite(
          contribution.tensors, worker_name(contribution.worker_id));
      if (!blamed.ok()) return start_anew(blamed);
    }
  }
  return start_anew(status);
}

absl::Status RestoreStrategy(SyncStrategy& strategy, const StrategyState& state,
                             const NamedTensors& weights) {
  return Guarded("the strategy's RestoreState",
                 [&] { return strategy.RestoreState(state, weights); });
}

absl::Status ResetStrategy(SyncStrategy& strategy,
                           const NamedTensors& weights) {
  return Guarded("the strategy's Reset", [&] {
    strategy.Reset(weights);
    return absl::OkStatus();
  });
}

absl::StatusOr<StrategyState> SaveStrategy(const SyncStrategy& strategy) {
  absl::StatusOr<StrategyState> state;
  MR_RETURN_IF_ERROR(Guarded("the strategy's SaveState", [&] {
    state = strategy.SaveState();
    return absl::OkStatus();
  }));
  return state;
}

absl::StatusOr<StrategyState> CopyOfState(const SyncStrategy& strategy) {
  MR_ASSIGN_OR_RETURN(StrategyState state, SaveStrategy(strategy));
  for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
  return state;
}

absl::Status Guarded(absl::string_view who,
                     absl::FunctionRef<absl::Status()> call) {
  try {
    return call();
  } catch (const std::exception& error) {  // c10::Error, out of memory
    return absl::InternalError(absl::StrCat(who, " threw: ", error.what()));
  } catch (...) {
    return absl::InternalError(
        absl::StrCat(who, " threw something that is no std::exception"));
  }
}

}  // namespace miniray::ps
