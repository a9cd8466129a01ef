// "diloco": an outer step of SGD with Nesterov momentum.
//
//   delta   = mean of the workers - weights
//   v       = momentum * v + delta,  v = 0 at the start
//   weights = weights + lr * (delta + momentum * v)
//
// on parameters; server_optimizer.h says what becomes of buffers and counters,
// and where the first step starts. With -delta as the gradient, the rule is
// that of PyTorch's torch.optim.SGD(nesterov=True). Meant for workers that take
// many steps with AdamW from one synchronisation to the next.
//
// Options: lr, above 0, 0.7 if not given; momentum, in [0, 1), 0.9 if not
// given.
//
// Douillard et al. 2023, DiLoCo: Distributed Low-Communication Training of
// Language Models.

#ifndef MINIRAY_PS_STRATEGIES_DILOCO_H_
#define MINIRAY_PS_STRATEGIES_DILOCO_H_

#include "ps/strategies/momentum_rule.h"
#include "ps/strategies/server_optimizer.h"

namespace miniray::ps {

struct Nesterov {
  static constexpr double kDefaultLr = 0.7;
  static constexpr double kDefaultMomentum = 0.9;
  static double Step(double delta, double v, double momentum) {
    return delta + momentum * v;
  }
};

using DiLoCoStrategy = ServerOptimizer<MomentumRule<Nesterov>>;

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_DILOCO_H_
