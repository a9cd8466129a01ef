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
  // Copies, so that the compiler sees that no store changes them.
  const double lr = lr_;
  const double momentum = momentum_;
  T* const v = step.moments[0];
  T* const out = step.out;
  const T* const weights = step.weights;
  const T* const deltas = step.delta;
#pragma GCC ivdep
  for (int64_t i = 0; i < step.size; ++i) {
    const double gradient = -static_cast<double>(deltas[i]);
    const double velocity = momentum * static_cast<double>(v[i]) + gradient;
    v[i] = static_cast<T>(velocity);
    out[i] = static_cast<T>(static_cast<double>(weights[i]) -
                            lr * (gradient + momentum * velocity));
  }
}

void DiLoCoStrategy::Apply(const Step<float>& step) const { Run(step); }
void DiLoCoStrategy::Apply(const Step<double>& step) const { Run(step); }

MINIRAY_SYNC_STRATEGY("diloco", DiLoCoStrategy);

}  // namespace miniray::ps
