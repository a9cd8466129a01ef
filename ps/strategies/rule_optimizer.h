// Server optimizers whose rule looks at one element at a time. A rule is a
// small struct; RuleOptimizer makes a strategy of it, with one loop for all of
// them:
//
//   struct SgdRule {
//     static constexpr size_t kMoments = 0;
//     static std::vector<OptionSpec> Options() { return {...}; }
//     static std::vector<ServerOptimizer::Moment> Moments(
//         const StrategyOptions& options) { return {}; }
//     explicit SgdRule(const StrategyOptions& options);
//
//     // Returns the new weight, and sets the moments to their new values.
//     double operator()(double weight, double delta,
//                       std::array<double, kMoments>& moments) const;
//   };
//   using SgdStrategy = RuleOptimizer<SgdRule>;
//
// The rule must neither branch nor call what cannot be inlined, or the loop is
// no vector loop. Compile with -O3 -fno-math-errno (BUILD.bazel).

#ifndef MINIRAY_PS_STRATEGIES_RULE_OPTIMIZER_H_
#define MINIRAY_PS_STRATEGIES_RULE_OPTIMIZER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ps/strategies/server_optimizer.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

template <class Rule>
class RuleOptimizer : public ServerOptimizer {
 public:
  static std::vector<OptionSpec> Options() { return Rule::Options(); }

  explicit RuleOptimizer(const StrategyOptions& options)
      : ServerOptimizer(Rule::Moments(options)), rule_(options) {}

 private:
  void Apply(const Step<float>& step) const override { Run(step); }
  void Apply(const Step<double>& step) const override { Run(step); }

  // A moment is never infinite, so that an absurd delta does not stop an
  // element for good.
  template <class T>
  static T Bounded(double value) {
    constexpr double kMost = std::numeric_limits<T>::max();
    return static_cast<T>(std::clamp(value, -kMost, kMost));
  }

  template <class T>
  void Run(const Step<T>& step) const {
    const Rule rule = rule_;  // A copy: no store changes it.
    std::array<T*, Rule::kMoments> kept;
    for (size_t k = 0; k < kept.size(); ++k) kept[k] = step.moments[k];
    const T* const weights = step.weights;
    const T* const deltas = step.delta;
    T* const out = step.out;
#pragma GCC ivdep
    for (int64_t i = 0; i < step.size; ++i) {
      std::array<double, Rule::kMoments> moments;
      for (size_t k = 0; k < kept.size(); ++k) {
        moments[k] = static_cast<double>(kept[k][i]);
      }
      out[i] = static_cast<T>(rule(static_cast<double>(weights[i]),
                                   static_cast<double>(deltas[i]), moments));
      for (size_t k = 0; k < kept.size(); ++k) {
        kept[k][i] = Bounded<T>(moments[k]);
      }
    }
  }

  const Rule rule_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_RULE_OPTIMIZER_H_
