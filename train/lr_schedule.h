// Learning-rate schedules: by what the optimizer's own learning rates are
// multiplied in each step.
//
//   lr(step) = lr of the optimizer * LrFactor(schedule, step)
//
// With s the steps taken so far, from 0, and T total_steps:
//
//   constant     1
//   step         gamma^floor(s / step_size)
//   multi_step   gamma^(number of milestones <= s)
//   exponential  gamma^s
//   linear       1 - (1 - end_factor) min(s, T) / T
//   cosine       end_factor +
//                (1 - end_factor) (1 + cos(pi min(s, T) / T)) / 2
//   one_cycle    up from 1 / div_factor to 1 in the steps 0 to peak T - 1, down
//                to 1 / (div_factor final_div_factor) at T - 1, and stays
//                there; both ways along half a cosine. The optimizer's own
//                learning rate is the highest. Momentum stays as it is.
//
// Before any of them, warmup_steps W > 0:
//
//   s < W        warmup_start + (1 - warmup_start) s / W
//   s >= W       the schedule, at s - W
//
// Sources: the formulas of torch.optim.lr_scheduler (StepLR, MultiStepLR,
// ExponentialLR, LinearLR, CosineAnnealingLR, OneCycleLR); Loshchilov, Hutter,
// "SGDR: stochastic gradient descent with warm restarts", ICLR 2017, equation
// 5; Smith, Topin, "Super-convergence", 2018; Goyal et al., "Accurate, large
// minibatch SGD", 2017, section 2.2 (warm-up).

#ifndef MINIRAY_TRAIN_LR_SCHEDULE_H_
#define MINIRAY_TRAIN_LR_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/option_map.h"
#include "runtime/wire/codec.h"

namespace miniray::train {

// May be an argument of a worker's constructor.
struct LrSchedule {
  enum class Kind {
    kConstant,
    kStep,
    kMultiStep,
    kExponential,
    kLinear,
    kCosine,
    kOneCycle,
  };
  Kind kind = Kind::kConstant;

  double gamma = 0.1;               // kStep, kMultiStep, kExponential: > 0.
  int64_t step_size = 1;            // kStep: >= 1.
  std::vector<int64_t> milestones;  // kMultiStep: rising, >= 1.
  // kLinear, kCosine: >= 1; kOneCycle: >= 3. Without the warm-up.
  int64_t total_steps = 0;
  double end_factor = 0;          // kLinear, kCosine: >= 0.
  double peak = 0.3;              // kOneCycle: 1 < peak T < T.
  double div_factor = 25;         // kOneCycle: >= 1.
  double final_div_factor = 1e4;  // kOneCycle: >= 1.
  int64_t warmup_steps = 0;       // >= 0.
  double warmup_start = 0;        // In [0, 1].

  bool operator==(const LrSchedule&) const = default;
};
MINIRAY_STRUCT(LrSchedule, kind, gamma, step_size, milestones, total_steps,
               end_factor, peak, div_factor, final_div_factor, warmup_steps,
               warmup_start);

// INVALID_ARGUMENT with the field and what it may be.
absl::Status Validate(const LrSchedule& schedule);

// REQUIRES: Validate(schedule) is OK, step >= 0.
double LrFactor(const LrSchedule& schedule, int64_t step);

// Returns the schedule that a run's config names: "lr_schedule" is one of the
// words above, "lr_" with a field's name that field ("lr_total_steps"); there
// are no milestones. Without "lr_schedule": constant.
//
// Errors: INVALID_ARGUMENT, with the option.
absl::StatusOr<LrSchedule> LrScheduleFromConfig(const ps::OptionMap& config);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_LR_SCHEDULE_H_
