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
  T* const v = step.moments[0];
  for (int64_t i = 0; i < step.size; ++i) {
    const double velocity = momentum_ * static_cast<double>(v[i]) +
                            static_cast<double>(step.delta[i]);
    v[i] = static_cast<T>(velocity);
    step.out[i] =
        static_cast<T>(static_cast<double>(step.weights[i]) + lr_ * velocity);
  }
}

void FedAvgMStrategy::Apply(const Step<float>& step) const { Run(step); }
void FedAvgMStrategy::Apply(const Step<double>& step) const { Run(step); }

MINIRAY_SYNC_STRATEGY("fedavgm", FedAvgMStrategy);

}  // namespace miniray::ps
