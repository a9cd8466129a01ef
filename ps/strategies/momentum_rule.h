// What fedavgm and diloco have in common: SGD with momentum on the server, of
// the one kind or the other.
//
//   delta   = mean of the workers - weights
//   v       = momentum * v + delta,  v = 0 at the start
//   weights = weights + lr * step(delta, v, momentum)

#ifndef MINIRAY_PS_STRATEGIES_MOMENTUM_RULE_H_
#define MINIRAY_PS_STRATEGIES_MOMENTUM_RULE_H_

#include <array>
#include <cstddef>
#include <vector>

#include "ps/strategies/optimizer_state.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

// Kind: has kDefaultLr, kDefaultMomentum and
//   static double Step(double delta, double v, double momentum);
template <class Kind>
class MomentumRule {
 public:
  static constexpr size_t kMoments = 1;

  static std::vector<OptionSpec> Options() {
    return {LearningRateOption(Kind::kDefaultLr),
            DecayOption("momentum", Kind::kDefaultMomentum,
                        "share of the last step that goes on")};
  }

  static std::vector<Moment> Moments(const StrategyOptions& options) {
    return {{.name = "v"}};
  }

  explicit MomentumRule(const StrategyOptions& options)
      : lr_(*options.GetDouble("lr", Kind::kDefaultLr)),
        momentum_(*options.GetDouble("momentum", Kind::kDefaultMomentum)) {}

  double operator()(double weight, double delta,
                    std::array<double, kMoments>& moments) const {
    double& v = moments[0];
    v = momentum_ * v + delta;
    return weight + lr_ * Kind::Step(delta, v, momentum_);
  }

 private:
  double lr_;
  double momentum_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_MOMENTUM_RULE_H_
