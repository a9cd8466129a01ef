#include "train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

using Kind = LrSchedule::Kind;

absl::Status Invalid(absl::string_view field, double value,
                     absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "lr schedule: ", field, " is ", value, "; expected ", expected));
}

bool Positive(double value) { return std::isfinite(value) && value > 0; }

// From `from` at 0 to `to` at 1 along half a cosine.
double HalfCosine(double from, double to, double fraction) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * fraction));
}

double OneCycle(const LrSchedule& schedule, int64_t step) {
  const double last = static_cast<double>(schedule.total_steps) - 1;
  const double top =
      schedule.peak * static_cast<double>(schedule.total_steps) - 1;
  const double start = 1 / schedule.div_factor;
  const double s = std::min(static_cast<double>(step), last);
  if (s <= top) return HalfCosine(start, 1, s / top);
  return HalfCosine(1, start / schedule.final_div_factor,
                    (s - top) / (last - top));
}

// Without the warm-up.
double Factor(const LrSchedule& schedule, int64_t step) {
  const double total = static_cast<double>(schedule.total_steps);
  const double s = static_cast<double>(std::min(step, schedule.total_steps));
  switch (schedule.kind) {
    case Kind::kConstant:
      return 1;
    case Kind::kStep:
      return std::pow(schedule.gamma,
                      static_cast<double>(step / schedule.step_size));
    case Kind::kMultiStep:
      return std::pow(schedule.gamma,
                      std::upper_bound(schedule.milestones.begin(),
                                       schedule.milestones.end(), step) -
                          schedule.milestones.begin());
    case Kind::kExponential:
      return std::pow(schedule.gamma, static_cast<double>(step));
    case Kind::kLinear:
      return 1 - (1 - schedule.end_factor) * s / total;
    case Kind::kCosine:
      return HalfCosine(1, schedule.end_factor, s / total);
    case Kind::kOneCycle:
      return OneCycle(schedule, step);
  }
  return 1;
}

absl::StatusOr<Kind> KindOf(const std::string& name) {
  const std::pair<absl::string_view, Kind> kinds[] = {
      {"constant", Kind::kConstant},    {"step", Kind::kStep},
      {"multi_step", Kind::kMultiStep}, {"exponential", Kind::kExponential},
      {"linear", Kind::kLinear},        {"cosine", Kind::kCosine},
      {"one_cycle", Kind::kOneCycle},
  };
  for (const auto& [word, kind] : kinds) {
    if (name == word) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "lr_schedule is '", name,
      "'; expected constant, step, exponential, linear, cosine or one_cycle"));
}

}  // namespace

absl::Status Validate(const LrSchedule& schedule) {
  const Kind kind = schedule.kind;
  if (schedule.warmup_steps < 0) {
    return Invalid("warmup_steps", static_cast<double>(schedule.warmup_steps),
                   "0 or more");
  }
  if (!(schedule.warmup_start >= 0 && schedule.warmup_start <= 1)) {
    return Invalid("warmup_start", schedule.warmup_start, "0 to 1");
  }
  if ((kind == Kind::kStep || kind == Kind::kMultiStep ||
       kind == Kind::kExponential) &&
      !Positive(schedule.gamma)) {
    return Invalid("gamma", schedule.gamma, "a finite number above 0");
  }
  if (kind == Kind::kStep && schedule.step_size < 1) {
    return Invalid("step_size", static_cast<double>(schedule.step_size),
                   "1 or more");
  }
  if (kind == Kind::kMultiStep) {
    int64_t last = 0;
    for (const int64_t milestone : schedule.milestones) {
      if (milestone <= last) {
        return Invalid("a milestone", static_cast<double>(milestone),
                       absl::StrCat("more than ", last));
      }
      last = milestone;
    }
  }
  const auto total = static_cast<double>(schedule.total_steps);
  if (kind == Kind::kLinear || kind == Kind::kCosine) {
    if (schedule.total_steps < 1) {
      return Invalid("total_steps", total, "1 or more");
    }
    if (!std::isfinite(schedule.end_factor) || schedule.end_factor < 0) {
      return Invalid("end_factor", schedule.end_factor,
                     "a finite number of 0 or more");
    }
  }
  if (kind == Kind::kOneCycle) {
    if (schedule.total_steps < 3) {
      return Invalid("total_steps", total, "3 or more");
    }
    if (!(schedule.peak * total > 1 && schedule.peak < 1)) {
      return Invalid("peak", schedule.peak,
                     absl::StrCat("more than 1 / total_steps, ", 1 / total,
                                  ", and less than 1"));
    }
    if (!std::isfinite(schedule.div_factor) || schedule.div_factor < 1) {
      return Invalid("div_factor", schedule.div_factor,
                     "a finite number of 1 or more");
    }
    if (!std::isfinite(schedule.final_div_factor) ||
        schedule.final_div_factor < 1) {
      return Invalid("final_div_factor", schedule.final_div_factor,
                     "a finite number of 1 or more");
    }
  }
  return absl::OkStatus();
}

double LrFactor(const LrSchedule& schedule, int64_t step) {
  if (step >= schedule.warmup_steps) {
    return Factor(schedule, step - schedule.warmup_steps);
  }
  return schedule.warmup_start + (1 - schedule.warmup_start) *
                                     static_cast<double>(step) /
                                     static_cast<double>(schedule.warmup_steps);
}

absl::StatusOr<LrSchedule> LrScheduleFromConfig(const ps::OptionMap& config) {
  LrSchedule schedule;
  MR_ASSIGN_OR_RETURN(const std::string name,
                      config.GetString("lr_schedule", "constant"));
  MR_ASSIGN_OR_RETURN(schedule.kind, KindOf(name));
  if (schedule.kind == Kind::kMultiStep) {
    return absl::InvalidArgumentError(
        "lr_schedule is 'multi_step', whose milestones a config cannot hold; "
        "make the LrSchedule where the worker is made");
  }
  const std::pair<const char*, double*> numbers[] = {
      {"lr_gamma", &schedule.gamma},
      {"lr_end_factor", &schedule.end_factor},
      {"lr_peak", &schedule.peak},
      {"lr_div_factor", &schedule.div_factor},
      {"lr_final_div_factor", &schedule.final_div_factor},
      {"lr_warmup_start", &schedule.warmup_start},
  };
  for (const auto& [option, field] : numbers) {
    MR_ASSIGN_OR_RETURN(*field, config.GetDouble(option, *field));
  }
  const std::pair<const char*, int64_t*> counts[] = {
      {"lr_step_size", &schedule.step_size},
      {"lr_total_steps", &schedule.total_steps},
      {"lr_warmup_steps", &schedule.warmup_steps},
  };
  for (const auto& [option, field] : counts) {
    MR_ASSIGN_OR_RETURN(*field, config.GetInt(option, *field));
  }
  MR_RETURN_IF_ERROR(Validate(schedule));
  return schedule;
}

}  // namespace miniray::train
