// What sgd, adam, adamw and adagrad have in common: the server takes the mean
// of the workers' gradients and applies an optimizer's rule to it.
//
//   gradient = mean over k of gradient_k
//   weights  = rule(weights, gradient, moments)
//
// on parameters. Buffers (BatchNorm's running statistics; see tensor_info.h)
// are the mean of the workers' values. Tensors that are not floating-point are
// the maximum of the workers' and the server's. optimizer_state.h tells the
// precision.

#ifndef MINIRAY_PS_STRATEGIES_GRADIENT_OPTIMIZER_H_
#define MINIRAY_PS_STRATEGIES_GRADIENT_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/gradient_strategy.h"
#include "ps/strategies/optimizer_state.h"
#include "ps/strategies/rule_loop.h"
#include "ps/strategy_registry.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

// Rule: as rule_loop.h says, and
//   static std::vector<OptionSpec> Options();
//   static absl::Status CheckOptions(const StrategyOptions& options);
//   static std::vector<Moment> Moments(const StrategyOptions& options);
//   explicit Rule(const StrategyOptions& options);
//   // The rule of one step; steps count from 1.
//   void Begin(int64_t step, double lr_scale);
template <class Rule>
class GradientOptimizer : public GradientStrategy {
 public:
  static std::vector<OptionSpec> Options() { return Rule::Options(); }
  static absl::Status CheckOptions(const StrategyOptions& options) {
    return Rule::CheckOptions(options);
  }

  explicit GradientOptimizer(const StrategyOptions& options)
      : state_(Rule::Moments(options)), rule_(options) {}

  absl::StatusOr<NamedTensors> Step(
      absl::Span<const Contribution> contributions, double lr_scale) override {
    if (state_.weights().empty()) {
      return absl::FailedPreconditionError(
          "there are no weights to step from; set them first");
    }
    const NamedTensors before = state_.weights();
    Rule rule = rule_;
    rule.Begin(step_ + 1, lr_scale);
    MR_ASSIGN_OR_RETURN(NamedTensors result,
                        state_.Step(contributions, 0, RuleLoop<Rule>(rule)));
    ++step_;
    for (size_t i = 0; i < result.size(); ++i) {
      at::Tensor& value = result[i].second;
      if (!IsFloat(value)) value.copy_(Maximum({{value, before[i].second}}));
    }
    return result;
  }

  void Reset(const NamedTensors& weights) override {
    state_.Reset(weights);
    step_ = 0;
  }

  absl::StatusOr<StrategyState> SaveState() const override {
    return StrategyState{.tensors = state_.Save(), .scalars = {{kStep, step_}}};
  }

  absl::Status RestoreState(const StrategyState& state,
                            const NamedTensors& weights) override {
    MR_ASSIGN_OR_RETURN(const int64_t step, state.scalars.GetInt(kStep, -1));
    if (step < 0) {
      return absl::InvalidArgumentError(
          "the saved state does not tell how many steps were taken");
    }
    MR_RETURN_IF_ERROR(state_.Restore(state.tensors, weights));
    step_ = step;
    return absl::OkStatus();
  }

 private:
  static constexpr char kStep[] = "step";

  OptimizerState state_;
  const Rule rule_;
  int64_t step_ = 0;  // Those taken.
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_GRADIENT_OPTIMIZER_H_
