// One loop for all rules that look at one element at a time. A rule is a small
// struct:
//
//   struct SgdRule {
//     static constexpr size_t kMoments = 0;
//
//     // Returns the new weight, and sets the moments to their new values.
//     double operator()(double weight, double gradient,
//                       std::array<double, kMoments>& moments) const;
//   };
//
// It must neither branch nor call what cannot be inlined, or the loop is no
// vector loop. Compile with -O3 -fno-math-errno (BUILD.bazel).

#ifndef MINIRAY_PS_STRATEGIES_RULE_LOOP_H_
#define MINIRAY_PS_STRATEGIES_RULE_LOOP_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "ps/cpu.h"
#include "ps/strategies/optimizer_state.h"

namespace miniray::ps {

// The rule finds zeros in place of moments that the state does not keep: all of
// them, or none.
template <class Rule>
class RuleLoop : public ElementRule {
 public:
  explicit RuleLoop(const Rule& rule) : rule_(rule) {}

  void Apply(const OptimizerStep<float>& step) const override { Start(step); }
  void Apply(const OptimizerStep<double>& step) const override { Start(step); }

 private:
  // A moment is never infinite, so that an absurd gradient does not stop an
  // element for good.
  template <class T>
  [[gnu::always_inline]] static T Bounded(double value) {
    constexpr double kMost = std::numeric_limits<T>::max();
    return static_cast<T>(std::clamp(value, -kMost, kMost));
  }

  template <class T>
  void Start(const OptimizerStep<T>& step) const {
    if (HasAvx2()) {
      RunAvx2(rule_, step);
    } else {
      RunPortable(rule_, step);
    }
  }

  template <class T>
  MR_AVX2 static void RunAvx2(const Rule& rule, const OptimizerStep<T>& step) {
    RunPortable(rule, step);
  }

  template <class T>
  [[gnu::always_inline]] static void RunPortable(const Rule& rule,
                                                 const OptimizerStep<T>& step) {
    if (step.moments.empty()) {
      Run<0>(rule, step);
    } else {
      Run<Rule::kMoments>(rule, step);
    }
  }

  template <size_t kKept, class T>
  [[gnu::always_inline]] static void Run(Rule rule,  // A copy: no store
                                                     // changes it.
                                         const OptimizerStep<T>& step) {
    std::array<T*, kKept> kept;
    for (size_t k = 0; k < kKept; ++k) kept[k] = step.moments[k];
    const T* const weights = step.weights;
    const T* const gradients = step.gradient;
    T* const out = step.out;
#pragma GCC ivdep
    for (int64_t i = 0; i < step.size; ++i) {
      std::array<double, Rule::kMoments> moments{};
      for (size_t k = 0; k < kKept; ++k) {
        moments[k] = static_cast<double>(kept[k][i]);
      }
      out[i] = static_cast<T>(rule(static_cast<double>(weights[i]),
                                   static_cast<double>(gradients[i]), moments));
      for (size_t k = 0; k < kKept; ++k) {
        kept[k][i] = Bounded<T>(moments[k]);
      }
    }
  }

  const Rule rule_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_RULE_LOOP_H_
