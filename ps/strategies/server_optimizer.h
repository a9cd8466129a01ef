// What fedavgm, fedadam, fedyogi, fedadagrad and diloco have in common: the
// server takes the step from its weights to the workers' mean as a gradient,
// and applies an optimizer's rule to it.
//
//   delta   = mean over k of worker_k - weights
//   weights = rule(weights, delta, moments)
//
// on parameters. Buffers (BatchNorm's running statistics; see tensor_info.h)
// are the mean of the workers. Tensors that are not floating-point are the
// maximum.
//
// The start: the first delta is from the weights given to Reset, which trainers
// see to. A server without weights takes the mean of the first contributions
// as its weights, and no step; moments are at their start. Computed in double,
// kept in the element type of the weights, float for float16 and bfloat16.
// Besides the server's weights, that is one model of memory for each moment.

#ifndef MINIRAY_PS_STRATEGIES_SERVER_OPTIMIZER_H_
#define MINIRAY_PS_STRATEGIES_SERVER_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class ServerOptimizer : public SyncStrategy {
 public:
  // What is remembered for each element.
  struct Moment {
    std::string name;
    double start = 0;
  };

  // Errors: INVALID_ARGUMENT, the model is not the one of the last call; then
  // nothing has changed.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) final;

  void Reset(const NamedTensors& weights) final;
  bool UsesStart() const final { return true; }

  // The moments: "m/NAME" and so on for each parameter, once there was a step.
  absl::StatusOr<StrategyState> SaveState() const final;
  absl::Status RestoreState(const StrategyState& state,
                            const NamedTensors& weights) final;

 protected:
  // Elements of one parameter.
  template <class T>
  struct Step {
    int64_t size;
    const T* weights;
    const T* delta;
    absl::Span<T* const> moments;  // In the order of the constructor's.
    T* out;                        // The new weights.
  };

  explicit ServerOptimizer(std::vector<Moment> moments);

  // Applies the rule to each element; must not throw. From several threads at a
  // time, each element once.
  virtual void Apply(const Step<float>& step) const = 0;
  virtual void Apply(const Step<double>& step) const = 0;

 private:
  // INVALID_ARGUMENT if RestoreState brought no moment for a parameter.
  absl::Status CheckMoments(const NamedTensors& model,
                            const std::vector<TensorInfo>& info) const;
  // Makes moment tensors at their start for the parameters of `model`.
  NamedTensors StartMoment(const NamedTensors& model,
                           const std::vector<TensorInfo>& info,
                           double start) const;

  const std::vector<Moment> moments_;
  NamedTensors weights_;  // The server's; empty: there are none yet.
  // For each moment a tensor of each parameter, undefined for what is none;
  // empty before the first step.
  std::vector<NamedTensors> values_;
};

// Options that several rules have.
OptionSpec LearningRateOption(double default_value);
OptionSpec DecayOption(const std::string& name, double default_value,
                       const std::string& help);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_SERVER_OPTIMIZER_H_
