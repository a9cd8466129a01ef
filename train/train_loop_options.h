// How a TrainLoop (train_loop.h) trains; apart from it, since it is light to
// include.

#ifndef MINIRAY_TRAIN_TRAIN_LOOP_OPTIONS_H_
#define MINIRAY_TRAIN_TRAIN_LOOP_OPTIONS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "runtime/wire/codec.h"
#include "train/loss_scaler.h"
#include "train/lr_schedule.h"
#include "train/mixed_precision.h"

namespace miniray::train {

// What happens where a loss, or a gradient that is looked at, is not finite.
// Gradients are looked at where they are clipped or unscaled.
enum class OnNonFinite {
  kError,  // Step returns ABORTED.
  // No step is taken; see "skipped_steps". Not where ranks average gradients as
  // they are computed (Context::PrepareModel): a rank makes no backward pass of
  // such a loss, and the others wait for it. So it is with a loss scaler.
  kSkip,
};

enum class ScheduleUnit { kStep, kEpoch };

// May be an argument of a worker's constructor.
struct TrainLoopOptions {
  // Calls of Step whose gradients make one step of the optimizer. Whatever the
  // sizes of these batches, the gradient is that of the mean over all their
  // samples, as of one big batch (but for rounding, and for modules like
  // BatchNorm that look at the batch as a whole).
  int64_t accumulate = 1;
  Precision precision = Precision::kFloat32;
  // kFloat16 has one in any case.
  std::optional<LossScalerOptions> loss_scaler;
  // See gradient_clipping.h; 0: not. By value first, where both are set.
  double clip_norm = 0;
  double clip_value = 0;
  OnNonFinite on_non_finite = OnNonFinite::kError;
  // Of every parameter group, on top of its own learning rate. A constant one
  // without a warm-up leaves the optimizer's learning rates alone.
  LrSchedule schedule;
  ScheduleUnit schedule_unit = ScheduleUnit::kStep;
};
MINIRAY_STRUCT(TrainLoopOptions, accumulate, precision, loss_scaler, clip_norm,
               clip_value, on_non_finite, schedule, schedule_unit);

// INVALID_ARGUMENT with the field and what it may be.
absl::Status Validate(const TrainLoopOptions& options);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_TRAIN_LOOP_OPTIONS_H_
