// "diloco": an outer step of SGD with Nesterov momentum.
//
//   g       = mean over k of (weights - worker_k)
//   v       = momentum * v + g,  v = 0 at the start
//   weights = weights - lr * (g + momentum * v)
//
// on parameters; server_optimizer.h says what becomes of buffers and counters,
// and where the first step starts. The rule is that of PyTorch's
// torch.optim.SGD(nesterov=True). Meant for workers that take many steps with
// AdamW from one synchronisation to the next.
//
// Options: lr, above 0, 0.7 if not given; momentum, in [0, 1), 0.9 if not
// given.
//
// Douillard et al. 2023, DiLoCo: Distributed Low-Communication Training of
// Language Models.

#ifndef MINIRAY_PS_STRATEGIES_DILOCO_H_
#define MINIRAY_PS_STRATEGIES_DILOCO_H_

#include <vector>

#include "ps/strategies/server_optimizer.h"
#include "ps/strategy_registry.h"

namespace miniray::ps {

class DiLoCoStrategy : public ServerOptimizer {
 public:
  static std::vector<OptionSpec> Options();
  explicit DiLoCoStrategy(const StrategyOptions& options);

 private:
  void Apply(const Step<float>& step) const override;
  void Apply(const Step<double>& step) const override;
  template <class T>
  void Run(const Step<T>& step) const;

  const double lr_;
  const double momentum_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_DILOCO_H_
