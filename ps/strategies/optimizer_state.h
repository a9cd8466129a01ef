// What all optimizers on the server have in common: the server's weights, what
// they remember for each element (moments), and one pass over all of it.
//
// Computed in double, kept in the element type of the weights, float for
// float16 and bfloat16. Besides the server's weights, that is one model of
// memory for each moment.

#ifndef MINIRAY_PS_STRATEGIES_OPTIMIZER_STATE_H_
#define MINIRAY_PS_STRATEGIES_OPTIMIZER_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

// What is remembered for each element.
struct Moment {
  std::string name;
  double start = 0;
};

// Elements of one parameter.
template <class T>
struct OptimizerStep {
  int64_t size;
  const T* weights;
  const T* gradient;             // Or what the rule takes for it.
  absl::Span<T* const> moments;  // In the order of the constructor's.
  T* out;                        // The new weights.
};

// A rule for elements; must not throw. Called from several threads at a time,
// for each element once.
class ElementRule {
 public:
  virtual ~ElementRule() = default;
  virtual void Apply(const OptimizerStep<float>& step) const = 0;
  virtual void Apply(const OptimizerStep<double>& step) const = 0;
};

class OptimizerState {
 public:
  explicit OptimizerState(std::vector<Moment> moments);

  // The server's; empty: there are none yet.
  const NamedTensors& weights() const { return weights_; }

  // These are the weights; moments are at their start.
  void Reset(const NamedTensors& weights);

  // Applies the rule to each element of the parameters, whose `gradient` is
  //   mean over k of contribution_k + keep * weights;
  // buffers become the mean of the contributions, and tensors that are not
  // floating-point their maximum. Returns the new weights.
  //
  // Errors: INVALID_ARGUMENT, the contributions do not look like the weights;
  // then nothing has changed. REQUIRES: there are weights.
  absl::StatusOr<NamedTensors> Step(
      absl::Span<const Contribution> contributions, double keep,
      const ElementRule& rule);

  // The same for one contribution, over whose tensors the result is written.
  absl::StatusOr<NamedTensors> StepOver(const Contribution& contribution,
                                        double keep, const ElementRule& rule);

  // The moments: "m/NAME" and so on for each parameter, once there was a step.
  NamedTensors Save() const;
  // The opposite. Errors: INVALID_ARGUMENT, they are not those of such an
  // optimizer and model; then nothing has changed.
  absl::Status Restore(const NamedTensors& saved_tensors,
                       const NamedTensors& weights);

 private:
  // As Step. over: write over the first contribution's tensors.
  absl::StatusOr<NamedTensors> StepInto(
      absl::Span<const Contribution> contributions, double keep,
      const ElementRule& rule, bool over);
  // INVALID_ARGUMENT if Restore brought no moment for a parameter.
  absl::Status CheckMoments(const NamedTensors& model,
                            const std::vector<TensorInfo>& info) const;
  // Makes moment tensors at their start for the parameters of `model`.
  NamedTensors StartMoment(const NamedTensors& model,
                           const std::vector<TensorInfo>& info,
                           double start) const;

  const std::vector<Moment> moments_;
  NamedTensors weights_;
  // For each moment a tensor of each parameter, undefined for what is none;
  // empty before the first step.
  std::vector<NamedTensors> values_;
};

// Options that several rules have.
OptionSpec LearningRateOption(double default_value);
OptionSpec DecayOption(const std::string& name, double default_value,
                       const std::string& help);
OptionSpec WeightDecayOption(double default_value);
OptionSpec EpsOption(double default_value);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_OPTIMIZER_STATE_H_
