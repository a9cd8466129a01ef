// "adagrad": Adagrad on the server, as torch.optim.Adagrad.
//
//   g       = gradient + weight_decay * weights
//   v       = v + g^2,  v = initial_accumulator_value at the start
//   weights = weights - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(v) + eps)
//
// in step t = 1, 2, ..., on parameters; gradient_optimizer.h says what becomes
// of the others.
//
// Options: lr, above 0, 0.01 if not given; lr_decay, weight_decay and
// initial_accumulator_value, of at least 0, 0 if not given; eps, above 0, 1e-10
// if not given.
//
// Duchi, Hazan, Singer 2011, Adaptive Subgradient Methods for Online Learning
// and Stochastic Optimization.

#ifndef MINIRAY_PS_STRATEGIES_ADAGRAD_H_
#define MINIRAY_PS_STRATEGIES_ADAGRAD_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ps/strategies/gradient_optimizer.h"
#include "ps/strategies/optimizer_state.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

class AdagradRule {
 public:
  static constexpr size_t kMoments = 1;

  static std::vector<OptionSpec> Options();
  static absl::Status CheckOptions(const StrategyOptions& options) {
    return absl::OkStatus();
  }
  static std::vector<Moment> Moments(const StrategyOptions& options);
  explicit AdagradRule(const StrategyOptions& options);

  void Begin(int64_t step, double lr_scale) {
    step_lr_ = lr_ * lr_scale / (1 + static_cast<double>(step - 1) * lr_decay_);
  }

  double operator()(double weight, double gradient,
                    std::array<double, kMoments>& moments) const {
    double& v = moments[0];
    const double g = gradient + weight_decay_ * weight;
    v = v + g * g;
    return weight - step_lr_ * g / (std::sqrt(v) + eps_);
  }

 private:
  double lr_;
  double lr_decay_;
  double weight_decay_;
  double eps_;
  double step_lr_ = 0;
};

using AdagradStrategy = GradientOptimizer<AdagradRule>;

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_ADAGRAD_H_
