// "fedadagrad": Adagrad on the server.
//
//   delta   = mean of the workers - weights
//   m       = beta1 * m + (1 - beta1) * delta,  m = 0 at the start
//   v       = v + delta^2,  v = tau^2 at the start
//   weights = weights + lr * m / (sqrt(v) + tau)
//
// on parameters; server_optimizer.h says what becomes of buffers and counters,
// and where the first step starts.
//
// Options: lr, above 0, 0.1 if not given; beta1, in [0, 1), 0.9 if
// not given; tau, above 0, 0.001 if not given. The paper runs it with
// beta1 = 0.
//
// Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan 2021, Adaptive
// Federated Optimization, algorithm 2.

#ifndef MINIRAY_PS_STRATEGIES_FEDADAGRAD_H_
#define MINIRAY_PS_STRATEGIES_FEDADAGRAD_H_

#include <vector>

#include "ps/strategies/adaptive_rule.h"
#include "ps/strategies/server_optimizer.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

class AdagradSquares {
 public:
  static constexpr double kDefaultLr = 0.1;
  static std::vector<OptionSpec> Options() { return {}; }

  explicit AdagradSquares(const StrategyOptions& options) {}

  double operator()(double v, double square) const { return v + square; }
};

using FedAdagradStrategy = ServerOptimizer<AdaptiveRule<AdagradSquares>>;

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_FEDADAGRAD_H_
