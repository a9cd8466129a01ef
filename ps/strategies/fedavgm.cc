#include "ps/strategies/fedavgm.h"

namespace miniray::ps {
namespace {

constexpr double kDefaultLr = 1.0;
constexpr double kDefaultMomentum = 0.0;

}  // namespace

std::vector<OptionSpec> FedAvgMStrategy::Options() {
  return {LearningRateOption(kDefaultLr),
          DecayOption("momentum", kDefaultMomentum,
                      "share of the last step that goes on")};
}

FedAvgMStrategy::FedAvgMStrategy(const StrategyOptions& options)
    : ServerOptimizer({{.name = "v"}}),
      lr_(*options.GetDouble("lr", kDefaultLr)),
      momentum_(*options.GetDouble("momentum", kDefaultMomentum)) {}

template <class T>
void FedAvgMStrategy::Run(const Step<T>& step) const {
  // Copies, so that the compiler sees that no store changes them.
  const double lr = lr_;
  const double momentum = momentum_;
  T* const v = step.moments[0];
  T* const out = step.out;
  const T* const weights = step.weights;
  const T* const deltas = step.delta;
#pragma GCC ivdep
  for (int64_t i = 0; i < step.size; ++i) {
    const double velocity =
        momentum * static_cast<double>(v[i]) + static_cast<double>(deltas[i]);
    v[i] = static_cast<T>(velocity);
    out[i] = static_cast<T>(static_cast<double>(weights[i]) + lr * velocity);
  }
}

void FedAvgMStrategy::Apply(const Step<float>& step) const { Run(step); }
void FedAvgMStrategy::Apply(const Step<double>& step) const { Run(step); }

MINIRAY_SYNC_STRATEGY("fedavgm", FedAvgMStrategy);

}  // namespace miniray::ps
