// "fedyogi": Yogi on the server, Adam with a slower v.
//
//   delta   = mean of the workers - weights
//   m       = beta1 * m + (1 - beta1) * delta,  m = 0 at the start
//   v       = v - (1 - beta2) * delta^2 * sign(v - delta^2),  v = tau^2 at the
//   start weights = weights + lr * m / (sqrt(v) + tau)
//
// on parameters; server_optimizer.h says what becomes of buffers and counters,
// and where the first step starts.
//
// Options: lr, above 0, 0.01 if not given; beta1 and beta2, in [0, 1), 0.9 and
// 0.99 if not given; tau, above 0, 0.001 if not given.
//
// Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan 2021, Adaptive
// Federated Optimization, algorithm 2.

#ifndef MINIRAY_PS_STRATEGIES_FEDYOGI_H_
#define MINIRAY_PS_STRATEGIES_FEDYOGI_H_

#include <vector>

#include "ps/strategies/server_optimizer.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

class FedYogiStrategy : public ServerOptimizer {
 public:
  static std::vector<OptionSpec> Options();
  explicit FedYogiStrategy(const StrategyOptions& options);

 private:
  void Apply(const Step<float>& step) const override;
  void Apply(const Step<double>& step) const override;
  template <class T>
  void Run(const Step<T>& step) const;

  const double lr_;
  const double beta1_;
  const double beta2_;
  const double tau_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_FEDYOGI_H_
