// "fedavgm": the workers' mean with momentum on the server.
//
//   delta   = mean of the workers - weights
//   v       = momentum * v + delta,  v = 0 at the start
//   weights = weights + lr * v
//
// on parameters; server_optimizer.h says what becomes of buffers and counters,
// and where the first step starts.
//
// Options: lr, above 0, 1 if not given; momentum, in [0, 1), 0 if not given.
// With these it is "average".
//
// Hsu, Qi, Brown 2019, Measuring the Effects of Non-Identical Data Distribution
// for Federated Visual Classification.

#ifndef MINIRAY_PS_STRATEGIES_FEDAVGM_H_
#define MINIRAY_PS_STRATEGIES_FEDAVGM_H_

#include <vector>

#include "ps/strategies/server_optimizer.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

class FedAvgMStrategy : public ServerOptimizer {
 public:
  static std::vector<OptionSpec> Options();
  explicit FedAvgMStrategy(const StrategyOptions& options);

 private:
  void Apply(const Step<float>& step) const override;
  void Apply(const Step<double>& step) const override;
  template <class T>
  void Run(const Step<T>& step) const;

  const double lr_;
  const double momentum_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_FEDAVGM_H_
