// What fedadam, fedyogi and fedadagrad have in common beside ServerOptimizer.

#ifndef MINIRAY_PS_STRATEGIES_ADAPTIVE_OPTIONS_H_
#define MINIRAY_PS_STRATEGIES_ADAPTIVE_OPTIONS_H_

#include <limits>

#include "ps/strategy_registry.h"

namespace miniray::ps {

// Keeps steps finite where deltas are small.
OptionSpec TauOption();
double Tau(const StrategyOptions& options);

// tau^2.
double StartOfV(const StrategyOptions& options);

// Never infinite, so that an absurd delta does not stop an element for good.
template <class T>
T Bounded(double value) {
  constexpr T kMost = std::numeric_limits<T>::max();
  const auto narrow = static_cast<T>(value);
  return narrow > kMost ? kMost : narrow;  // No branch: loops stay vectors.
}

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_ADAPTIVE_OPTIONS_H_
