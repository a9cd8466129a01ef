// "fedyogi": Yogi on the server, Adam with a slower v.
//
//   delta   = mean of the workers - weights
//   m       = beta1 * m + (1 - beta1) * delta,  m = 0 at the start
//   v       = v - (1 - beta2) * delta^2 * sign(v - delta^2)
//   weights = weights + lr * m / (sqrt(v) + tau)
//
// where v = tau^2 at the start, on parameters; server_optimizer.h says what
// becomes of buffers and counters, and where the first step starts.
//
// Options: lr, above 0, 0.01 if not given; beta1 and beta2, in [0, 1), 0.9 and
// 0.99 if not given; tau, above 0, 0.001 if not given.
//
// Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan 2021, Adaptive
// Federated Optimization, algorithm 2.

#ifndef MINIRAY_PS_STRATEGIES_FEDYOGI_H_
#define MINIRAY_PS_STRATEGIES_FEDYOGI_H_

#include <vector>

#include "ps/strategies/adaptive_rule.h"
#include "ps/strategies/server_optimizer.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

class YogiSquares {
 public:
  static constexpr double kDefaultLr = 0.01;
  static std::vector<OptionSpec> Options() { return {Beta2Option()}; }

  explicit YogiSquares(const StrategyOptions& options)
      : beta2_(*options.GetDouble("beta2", kDefaultBeta2)) {}

  double operator()(double v, double square) const {
    const double sign = v > square ? 1 : v < square ? -1 : 0;
    return v - (1 - beta2_) * square * sign;
  }

 private:
  double beta2_;
};

using FedYogiStrategy = ServerOptimizer<AdaptiveRule<YogiSquares>>;

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_FEDYOGI_H_
