// The factor by which a loss in half precision is multiplied, so that small
// gradients do not vanish, and how it finds its size: it grows after a number
// of good steps in a row, and shrinks where gradients overflow.
//
// Sources: Micikevicius et al., "Mixed precision training", ICLR 2018, section
// 3.2; the rules of torch.cuda.amp.GradScaler. Unlike there, the scale stays at
// or above min_scale, where overflow is no longer the scale's fault.
//
// Arithmetic only: works on any device.

#ifndef MINIRAY_TRAIN_LOSS_SCALER_H_
#define MINIRAY_TRAIN_LOSS_SCALER_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "runtime/wire/codec.h"

namespace miniray::train {

struct LossScalerOptions {
  double initial_scale = 65536;    // >= min_scale.
  double growth_factor = 2;        // > 1.
  double backoff_factor = 0.5;     // In (0, 1).
  int64_t growth_interval = 2000;  // Good steps until it grows; >= 1.
  double min_scale = 1;            // > 0.
};
MINIRAY_STRUCT(LossScalerOptions, initial_scale, growth_factor, backoff_factor,
               growth_interval, min_scale);

// INVALID_ARGUMENT with the field and what it may be.
absl::Status Validate(const LossScalerOptions& options);

// Not thread-safe.
class LossScaler {
 public:
  // What changes; for checkpoints.
  struct State {
    double scale = 0;
    int64_t good_steps = 0;  // Since the scale last changed.
  };

  // REQUIRES: Validate(options) is OK.
  explicit LossScaler(const LossScalerOptions& options)
      : options_(options), state_{.scale = options.initial_scale} {}

  double scale() const { return state_.scale; }
  bool AtMinimum() const { return state_.scale <= options_.min_scale; }

  // Divides the gradients of a scaled loss by scale() * divisor, in place.
  // Returns false, and changes nothing, if one of them is infinite or NaN.
  bool Unscale(const std::vector<at::Tensor>& gradients,
               double divisor = 1) const;

  // Ends a step: its gradients were finite, or they were not.
  void Update(bool finite);

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  const LossScalerOptions options_;
  State state_;
};
MINIRAY_STRUCT(LossScaler::State, scale, good_steps);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_LOSS_SCALER_H_
