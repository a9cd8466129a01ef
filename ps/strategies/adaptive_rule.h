// What fedadam, fedyogi and fedadagrad have in common:
//
//   delta   = mean of the workers - weights
//   m       = beta1 * m + (1 - beta1) * delta,  m = 0 at the start
//   v       = squares(v, delta^2),  v = tau^2 at the start
//   weights = weights + lr * m / (sqrt(v) + tau)
//
// Each says how squares are summed, and which lr is the default:
//
//   struct AdamSquares {
//     static constexpr double kDefaultLr = 0.1;
//     static std::vector<OptionSpec> Options() { return {...}; }
//     explicit AdamSquares(const StrategyOptions& options);
//     double operator()(double v, double square) const;  // The new v.
//   };
//   using FedAdamStrategy = ServerOptimizer<AdaptiveRule<AdamSquares>>;
//
// Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan 2021, Adaptive
// Federated Optimization, algorithm 2.

#ifndef MINIRAY_PS_STRATEGIES_ADAPTIVE_RULE_H_
#define MINIRAY_PS_STRATEGIES_ADAPTIVE_RULE_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "ps/strategies/optimizer_state.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

template <class Squares>
class AdaptiveRule {
 public:
  static constexpr size_t kMoments = 2;

  static std::vector<OptionSpec> Options() {
    std::vector<OptionSpec> options = {
        LearningRateOption(Squares::kDefaultLr),
        DecayOption("beta1", kDefaultBeta1, "decay of the mean of deltas"),
        {.name = "tau",
         .default_value = kDefaultTau,
         .help = "added to the root of v; larger is less adaptive",
         .min = 0,
         .min_allowed = false}};
    for (OptionSpec& option : Squares::Options()) {
      options.push_back(std::move(option));
    }
    return options;
  }

  static std::vector<Moment> Moments(const StrategyOptions& options) {
    const double tau = *options.GetDouble("tau", kDefaultTau);
    return {{.name = "m"}, {.name = "v", .start = tau * tau}};
  }

  explicit AdaptiveRule(const StrategyOptions& options)
      : squares_(options),
        lr_(*options.GetDouble("lr", Squares::kDefaultLr)),
        beta1_(*options.GetDouble("beta1", kDefaultBeta1)),
        tau_(*options.GetDouble("tau", kDefaultTau)) {}

  double operator()(double weight, double delta,
                    std::array<double, kMoments>& moments) const {
    auto& [m, v] = moments;
    m = beta1_ * m + (1 - beta1_) * delta;
    v = squares_(v, delta * delta);
    return weight + lr_ * m / (std::sqrt(v) + tau_);
  }

 private:
  static constexpr double kDefaultBeta1 = 0.9;
  static constexpr double kDefaultTau = 1e-3;

  Squares squares_;
  double lr_;
  double beta1_;
  double tau_;
};

// The option beta2 of fedadam and fedyogi.
inline constexpr double kDefaultBeta2 = 0.99;
inline OptionSpec Beta2Option() {
  return DecayOption("beta2", kDefaultBeta2, "decay of the mean of squares");
}

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_ADAPTIVE_RULE_H_
