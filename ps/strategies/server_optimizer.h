// What fedavgm, fedadam, fedyogi, fedadagrad and diloco have in common: the
// server takes the step from its weights to the workers' mean as a gradient,
// and applies an optimizer's rule to it.
//
//   delta   = mean over k of worker_k - weights
//   weights = rule(weights, delta, moments)
//
// on parameters. Buffers (BatchNorm's running statistics; see tensor_info.h)
// are the mean of the workers. Tensors that are not floating-point are the
// maximum.
//
// The start: the first delta is from the weights given to Reset, which trainers
// see to. A server without weights takes the mean of the first contributions
// as its weights, and no step; moments are at their start. optimizer_state.h
// tells the precision.

#ifndef MINIRAY_PS_STRATEGIES_SERVER_OPTIMIZER_H_
#define MINIRAY_PS_STRATEGIES_SERVER_OPTIMIZER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategies/optimizer_state.h"
#include "ps/strategies/rule_loop.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"
#include "ps/tensor_math.h"

namespace miniray::ps {

// Rule: as rule_loop.h says, with `delta` for the gradient, and
//   static std::vector<OptionSpec> Options();
//   static std::vector<Moment> Moments(const StrategyOptions& options);
//   explicit Rule(const StrategyOptions& options);
template <class Rule>
class ServerOptimizer : public SyncStrategy {
 public:
  static std::vector<OptionSpec> Options() { return Rule::Options(); }

  explicit ServerOptimizer(const StrategyOptions& options)
      : state_(Rule::Moments(options)), rule_(Rule(options)) {}

  // Errors: INVALID_ARGUMENT, the model is not the one of the last call; then
  // nothing has changed.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override {
    if (!state_.weights().empty()) return state_.Step(contributions, -1, rule_);
    state_.Reset(MeanOfModels(contributions));
    return state_.weights();
  }

  absl::StatusOr<NamedTensors> AggregateOwn(
      Contribution contribution) override {
    if (!state_.weights().empty())
      return state_.StepOver(contribution, -1, rule_);
    state_.Reset(contribution.tensors);
    return state_.weights();
  }

  void Reset(const NamedTensors& weights) override { state_.Reset(weights); }
  bool UsesStart() const override { return true; }

  absl::StatusOr<StrategyState> SaveState() const override {
    return StrategyState{.tensors = state_.Save()};
  }
  absl::Status RestoreState(const StrategyState& state,
                            const NamedTensors& weights) override {
    return state_.Restore(state.tensors, weights);
  }

 private:
  OptimizerState state_;
  const RuleLoop<Rule> rule_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_SERVER_OPTIMIZER_H_
