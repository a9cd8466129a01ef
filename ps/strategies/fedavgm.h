// "fedavgm": the workers' mean with momentum on the server.
//
//   delta   = mean of the workers - weights
//   v       = momentum * v + delta,  v = 0 at the start
//   weights = weights + lr * v
//
// on parameters; server_optimizer.h says what becomes of buffers and counters,
// and where the first step starts.
//
// Options: lr, above 0, 1 if not given; momentum, in [0, 1), 0 if not given.
// With these it is "average".
//
// Hsu, Qi, Brown 2019, Measuring the Effects of Non-Identical Data Distribution
// for Federated Visual Classification.

#ifndef MINIRAY_PS_STRATEGIES_FEDAVGM_H_
#define MINIRAY_PS_STRATEGIES_FEDAVGM_H_

#include "ps/strategies/momentum_rule.h"
#include "ps/strategies/server_optimizer.h"

namespace miniray::ps {

struct HeavyBall {
  static constexpr double kDefaultLr = 1.0;
  static constexpr double kDefaultMomentum = 0.0;
  static double Step(double delta, double v, double momentum) { return v; }
};

using FedAvgMStrategy = ServerOptimizer<MomentumRule<HeavyBall>>;

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_FEDAVGM_H_
