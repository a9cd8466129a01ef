#include "ps/strategies/diloco.h"

namespace miniray::ps {
namespace {

constexpr double kDefaultLr = 0.7;
constexpr double kDefaultMomentum = 0.9;

}  // namespace

std::vector<OptionSpec> DiLoCoStrategy::Options() {
  return {LearningRateOption(kDefaultLr),
          DecayOption("momentum", kDefaultMomentum,
                      "share of the last step that goes on")};
}

DiLoCoStrategy::DiLoCoStrategy(const StrategyOptions& options)
    : ServerOptimizer({{.name = "v"}}),
      lr_(*options.GetDouble("lr", kDefaultLr)),
      momentum_(*options.GetDouble("momentum", kDefaultMomentum)) {}

template <class T>
void DiLoCoStrategy::Run(const Step<T>& step) const {
  T* const v = step.moments[0];
  for (int64_t i = 0; i < step.size; ++i) {
    const double gradient = -static_cast<double>(step.delta[i]);
    const double velocity = momentum_ * static_cast<double>(v[i]) + gradient;
    v[i] = static_cast<T>(velocity);
    step.out[i] = static_cast<T>(static_cast<double>(step.weights[i]) -
                                 lr_ * (gradient + momentum_ * velocity));
  }
}

void DiLoCoStrategy::Apply(const Step<float>& step) const { Run(step); }
void DiLoCoStrategy::Apply(const Step<double>& step) const { Run(step); }

MINIRAY_SYNC_STRATEGY("diloco", DiLoCoStrategy);

}  // namespace miniray::ps
