// "adam": Adam on the server, as torch.optim.Adam: adam_rule.h has the formula,
// with weight_decay as an L2 penalty; gradient_optimizer.h says what becomes of
// tensors that are no parameters.
//
// Options: lr, above 0, 0.001 if not given; beta1 and beta2, in [0, 1), 0.9 and
// 0.999 if not given; eps, above 0, 1e-8 if not given; weight_decay, of at
// least 0, 0 if not given.
//
// Kingma, Ba 2015, Adam: A Method for Stochastic Optimization.

#ifndef MINIRAY_PS_STRATEGIES_ADAM_H_
#define MINIRAY_PS_STRATEGIES_ADAM_H_

#include "ps/strategies/adam_rule.h"
#include "ps/strategies/gradient_optimizer.h"

namespace miniray::ps {

struct PenaltyDecay {
  static constexpr double kDefaultWeightDecay = 0;
  static constexpr bool kDecoupled = false;
};

using AdamStrategy = GradientOptimizer<AdamRule<PenaltyDecay>>;

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_ADAM_H_
