#include "ps/strategies/fedadam.h"

#include <cmath>

#include "ps/strategies/adaptive_options.h"

namespace miniray::ps {
namespace {

constexpr double kDefaultLr = 0.1;
constexpr double kDefaultBeta1 = 0.9;
constexpr double kDefaultBeta2 = 0.99;

}  // namespace

std::vector<OptionSpec> FedAdamStrategy::Options() {
  return {LearningRateOption(kDefaultLr),
          DecayOption("beta1", kDefaultBeta1, "decay of the mean of deltas"),
          DecayOption("beta2", kDefaultBeta2, "decay of the mean of squares"),
          TauOption()};
}

FedAdamStrategy::FedAdamStrategy(const StrategyOptions& options)
    : ServerOptimizer(
          {{.name = "m"}, {.name = "v", .start = StartOfV(options)}}),
      lr_(*options.GetDouble("lr", kDefaultLr)),
      beta1_(*options.GetDouble("beta1", kDefaultBeta1)),
      beta2_(*options.GetDouble("beta2", kDefaultBeta2)),
      tau_(Tau(options)) {}

template <class T>
void FedAdamStrategy::Run(const Step<T>& step) const {
  // Copies, so that the compiler sees that no store changes them.
  const double lr = lr_;
  const double beta1 = beta1_;
  const double beta2 = beta2_;
  const double tau = tau_;
  T* const m = step.moments[0];
  T* const v = step.moments[1];
  T* const out = step.out;
  const T* const weights = step.weights;
  const T* const deltas = step.delta;
#pragma GCC ivdep
  for (int64_t i = 0; i < step.size; ++i) {
    const auto delta = static_cast<double>(deltas[i]);
    const double square = delta * delta;
    const auto before = static_cast<double>(v[i]);
    const double mean = beta1 * static_cast<double>(m[i]) + (1 - beta1) * delta;
    const double variance = beta2 * before + (1 - beta2) * square;
    m[i] = static_cast<T>(mean);
    v[i] = Bounded<T>(variance);
    out[i] = static_cast<T>(static_cast<double>(weights[i]) +
                            lr * mean / (std::sqrt(variance) + tau));
  }
}

void FedAdamStrategy::Apply(const Step<float>& step) const { Run(step); }
void FedAdamStrategy::Apply(const Step<double>& step) const { Run(step); }

MINIRAY_SYNC_STRATEGY("fedadam", FedAdamStrategy);

}  // namespace miniray::ps
