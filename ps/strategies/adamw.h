// "adamw": Adam with decoupled weight decay on the server, as
// torch.optim.AdamW: adam_rule.h has the formula; gradient_optimizer.h says
// what becomes of tensors that are no parameters.
//
// Options: those of adam; weight_decay is 0.01 if not given.
//
// Loshchilov, Hutter 2019, Decoupled Weight Decay Regularization.

#ifndef MINIRAY_PS_STRATEGIES_ADAMW_H_
#define MINIRAY_PS_STRATEGIES_ADAMW_H_

#include "ps/strategies/adam_rule.h"
#include "ps/strategies/gradient_optimizer.h"

namespace miniray::ps {

struct DecoupledDecay {
  static constexpr double kDefaultWeightDecay = 0.01;
  static constexpr bool kDecoupled = true;
};

using AdamWStrategy = GradientOptimizer<AdamRule<DecoupledDecay>>;

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_ADAMW_H_
