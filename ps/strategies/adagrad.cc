#include "ps/strategies/adagrad.h"

namespace miniray::ps {
namespace {

constexpr double kDefaultLr = 0.01;
constexpr double kDefaultEps = 1e-10;
constexpr char kInitial[] = "initial_accumulator_value";

}  // namespace

std::vector<OptionSpec> AdagradRule::Options() {
  return {LearningRateOption(kDefaultLr),
          {.name = "lr_decay",
           .default_value = 0.0,
           .help = "by which lr falls with the steps",
           .min = 0},
          WeightDecayOption(0),
          {.name = kInitial,
           .default_value = 0.0,
           .help = "sum of squares at the start",
           .min = 0},
          EpsOption(kDefaultEps)};
}

std::vector<Moment> AdagradRule::Moments(const StrategyOptions& options) {
  return {{.name = "v", .start = *options.GetDouble(kInitial, 0)}};
}

AdagradRule::AdagradRule(const StrategyOptions& options)
    : lr_(*options.GetDouble("lr", kDefaultLr)),
      lr_decay_(*options.GetDouble("lr_decay", 0)),
      weight_decay_(*options.GetDouble("weight_decay", 0)),
      eps_(*options.GetDouble("eps", kDefaultEps)) {}

MINIRAY_SYNC_STRATEGY("adagrad", AdagradStrategy);

}  // namespace miniray::ps
