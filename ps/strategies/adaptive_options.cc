#include "ps/strategies/adaptive_options.h"

namespace miniray::ps {
namespace {

constexpr double kDefaultTau = 1e-3;

}  // namespace

OptionSpec TauOption() {
  return {.name = "tau",
          .default_value = kDefaultTau,
          .help = "added to the root of v; larger is less adaptive",
          .min = 0,
          .min_allowed = false};
}

double Tau(const StrategyOptions& options) {
  return *options.GetDouble("tau", kDefaultTau);
}

double StartOfV(const StrategyOptions& options) {
  return Tau(options) * Tau(options);
}

}  // namespace miniray::ps
