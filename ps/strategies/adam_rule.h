// What adam and adamw have in common, as in PyTorch:
//
//   m       = beta1 * m + (1 - beta1) * g,    m = 0 at the start
//   v       = beta2 * v + (1 - beta2) * g^2,  v = 0 at the start
//   weights = weights
//             - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
//
// in step t = 1, 2, ... Where weight_decay goes, the kind says: into g (adam:
// g = gradient + weight_decay * weights), or off the weights before the step
// (adamw: weights = weights - lr * weight_decay * weights).

#ifndef MINIRAY_PS_STRATEGIES_ADAM_RULE_H_
#define MINIRAY_PS_STRATEGIES_ADAM_RULE_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ps/strategies/optimizer_state.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

// Kind: has kDefaultWeightDecay and kDecoupled.
template <class Kind>
class AdamRule {
 public:
  static constexpr size_t kMoments = 2;

  static std::vector<OptionSpec> Options() {
    return {LearningRateOption(kDefaultLr),
            DecayOption("beta1", kDefaultBeta1, "decay of the mean gradient"),
            DecayOption("beta2", kDefaultBeta2, "decay of the mean square"),
            EpsOption(kDefaultEps),
            WeightDecayOption(Kind::kDefaultWeightDecay)};
  }

  static absl::Status CheckOptions(const StrategyOptions& options) {
    return absl::OkStatus();
  }

  static std::vector<Moment> Moments(const StrategyOptions& options) {
    return {{.name = "m"}, {.name = "v"}};
  }

  explicit AdamRule(const StrategyOptions& options)
      : lr_(*options.GetDouble("lr", kDefaultLr)),
        beta1_(*options.GetDouble("beta1", kDefaultBeta1)),
        beta2_(*options.GetDouble("beta2", kDefaultBeta2)),
        eps_(*options.GetDouble("eps", kDefaultEps)),
        weight_decay_(
            *options.GetDouble("weight_decay", Kind::kDefaultWeightDecay)) {}

  void Begin(int64_t step, double lr_scale) {
    const auto t = static_cast<double>(step);
    const double lr = lr_ * lr_scale;
    step_size_ = lr / (1 - std::pow(beta1_, t));
    inverse_root_ = 1 / std::sqrt(1 - std::pow(beta2_, t));
    kept_weight_ = Kind::kDecoupled ? 1 - lr * weight_decay_ : 1;
    decay_in_gradient_ = Kind::kDecoupled ? 0 : weight_decay_;
  }

  double operator()(double weight, double gradient,
                    std::array<double, kMoments>& moments) const {
    auto& [m, v] = moments;
    const double g = gradient + decay_in_gradient_ * weight;
    m = beta1_ * m + (1 - beta1_) * g;
    v = beta2_ * v + (1 - beta2_) * (g * g);
    return kept_weight_ * weight -
           step_size_ * m / (std::sqrt(v) * inverse_root_ + eps_);
  }

 private:
  static constexpr double kDefaultLr = 1e-3;
  static constexpr double kDefaultBeta1 = 0.9;
  static constexpr double kDefaultBeta2 = 0.999;
  static constexpr double kDefaultEps = 1e-8;

  double lr_;
  double beta1_;
  double beta2_;
  double eps_;
  double weight_decay_;
  double step_size_ = 0;
  double inverse_root_ = 1;
  double kept_weight_ = 1;
  double decay_in_gradient_ = 0;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_ADAM_RULE_H_
