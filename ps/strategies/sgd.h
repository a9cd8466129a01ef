// "sgd": stochastic gradient descent on the server, as torch.optim.SGD.
//
//   g       = gradient + weight_decay * weights
//   v       = momentum * v + (1 - dampening) * g,  v = g in the first step
//   weights = weights - lr * (nesterov ? g + momentum * v : v)
//
// on parameters; gradient_optimizer.h says what becomes of the others.
//
// Options: lr, above 0, 0.01 if not given; momentum, in [0, 1), 0 if not given:
// then nothing is remembered; dampening, in [0, 1], and weight_decay, of at
// least 0, both 0 if not given; nesterov, false if not given, needs momentum
// and no dampening.
//
// Sutskever, Martens, Dahl, Hinton 2013, On the Importance of Initialization
// and Momentum in Deep Learning, in the form that PyTorch has given it.

#ifndef MINIRAY_PS_STRATEGIES_SGD_H_
#define MINIRAY_PS_STRATEGIES_SGD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ps/strategies/gradient_optimizer.h"
#include "ps/strategies/optimizer_state.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

class SgdRule {
 public:
  static constexpr size_t kMoments = 1;

  static std::vector<OptionSpec> Options();
  static absl::Status CheckOptions(const StrategyOptions& options);
  static std::vector<Moment> Moments(const StrategyOptions& options);
  explicit SgdRule(const StrategyOptions& options);

  void Begin(int64_t step, double lr_scale) {
    step_lr_ = lr_ * lr_scale;
    const double share = step == 1 ? 1 : 1 - dampening_;
    gradient_share_ = share;
    // What of g and of v the weights move by.
    g_share_ = nesterov_ ? 1 : 0;
    v_share_ = nesterov_ ? momentum_ : 1;
  }

  double operator()(double weight, double gradient,
                    std::array<double, kMoments>& moments) const {
    double& v = moments[0];
    const double g = gradient + weight_decay_ * weight;
    v = momentum_ * v + gradient_share_ * g;
    return weight - step_lr_ * (g_share_ * g + v_share_ * v);
  }

 private:
  double lr_;
  double momentum_;
  double dampening_;
  double weight_decay_;
  bool nesterov_;
  double step_lr_ = 0;
  double gradient_share_ = 0;
  double g_share_ = 0;
  double v_share_ = 0;
};

using SgdStrategy = GradientOptimizer<SgdRule>;

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_SGD_H_
