// What fedadam, fedyogi and fedadagrad have in common beside ServerOptimizer.

#ifndef MINIRAY_PS_STRATEGIES_ADAPTIVE_OPTIONS_H_
#define MINIRAY_PS_STRATEGIES_ADAPTIVE_OPTIONS_H_

#include <algorithm>
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
  constexpr double kMost = std::numeric_limits<T>::max();
  return static_cast<T>(std::min(value, kMost));
}

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_ADAPTIVE_OPTIONS_H_
