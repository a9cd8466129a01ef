// A strategy may be anybody's: what the server does around it, so that a
// mistake in one reaches no worker.

#ifndef MINIRAY_PS_RUN_STRATEGY_H_
#define MINIRAY_PS_RUN_STRATEGY_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps/sync_strategy.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// Returns what `aggregate` does, a call of the strategy with these
// contributions, once it is checked: of their form, and finite. A strategy that
// throws, or whose result is refused, is Reset to `weights`; if that fails, the
// error says so, too.
//
// name: of the strategy, for errors.  worker_name: of a contribution's worker.
// Errors: what the strategy returns. INTERNAL, it threw or its result is not of
// the contributions' form. INVALID_ARGUMENT, a contribution is not finite, and
// so is the result.
absl::StatusOr<NamedTensors> RunStrategy(
    SyncStrategy& strategy, absl::string_view name, const NamedTensors& weights,
    absl::Span<const Contribution> contributions,
    absl::FunctionRef<absl::StatusOr<NamedTensors>()> aggregate,
    absl::FunctionRef<std::string(int)> worker_name);

// The strategy's RestoreState, Reset and SaveState; what they throw is
// INTERNAL.
absl::Status RestoreStrategy(SyncStrategy& strategy, const StrategyState& state,
                             const NamedTensors& weights);
absl::Status ResetStrategy(SyncStrategy& strategy, const NamedTensors& weights);
absl::StatusOr<StrategyState> SaveStrategy(const SyncStrategy& strategy);
// What SaveStrategy returns, in memory of its own.
absl::StatusOr<StrategyState> CopyOfState(const SyncStrategy& strategy);

// Returns what `call` does; what it throws is INTERNAL, "WHO threw: ...".
absl::Status Guarded(absl::string_view who,
                     absl::FunctionRef<absl::Status()> call);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_RUN_STRATEGY_H_
