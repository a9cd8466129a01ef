#include "ml/cli/train_loop_flags.h"

#include <cmath>
#include <cstdint>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "ps/option_map.h"
#include "runtime/base/status_macros.h"
#include "train/lr_schedule.h"
#include "train/mixed_precision.h"

ABSL_FLAG(int64_t, accumulate, 1,
          "batches whose gradients make one step of the optimizer");
ABSL_FLAG(std::string, precision, "float32",
          "float32, bfloat16 or float16 (on CUDA): in what matrix products are "
          "computed; weights stay float32");
ABSL_FLAG(double, clip_norm, 0,
          "gradients of a network are scaled down to this norm; 0: not");
ABSL_FLAG(
    std::string, lr_schedule, "constant",
    "constant, linear or cosine (both fall towards 0 with the epochs), or "
    "one_cycle");
ABSL_FLAG(int64_t, warmup_epochs, 0,
          "epochs in which the learning rate rises to --lr");
ABSL_FLAG(std::string, on_non_finite, "error",
          "a loss or gradient that is not finite: error ends training, skip "
          "leaves the step out");
ABSL_FLAG(std::string, device, "auto",
          "where a worker computes: cpu, cuda, cuda:N, or auto for the first "
          "CUDA device that it may see, else the CPU");

namespace miniray::ml {
namespace {

absl::Status Expected(absl::string_view flag, absl::string_view value,
                      absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is '", value, "'; expected ", expected));
}

absl::StatusOr<train::LrSchedule> ScheduleFromFlags(int epochs) {
  const std::string name = absl::GetFlag(FLAGS_lr_schedule);
  const int64_t warmup = absl::GetFlag(FLAGS_warmup_epochs);
  if (warmup < 0 || warmup >= epochs) {
    return Expected(
        "warmup-epochs", absl::StrCat(warmup),
        absl::StrCat("0 to ", epochs - 1, ", fewer than there are epochs"));
  }
  if (name != "constant" && name != "linear" && name != "cosine" &&
      name != "one_cycle") {
    return Expected("lr-schedule", name,
                    "constant, linear, cosine or one_cycle");
  }
  ps::OptionMap config = {{"lr_schedule", name}, {"lr_warmup_steps", warmup}};
  if (name != "constant") {
    config.Set("lr_total_steps", static_cast<int64_t>(epochs) - warmup);
  }
  // Not from 0: the first epoch is to train, too.
  config.Set("lr_warmup_start", 1 / static_cast<double>(warmup + 1));
  absl::StatusOr<train::LrSchedule> schedule =
      train::LrScheduleFromConfig(config);
  if (!schedule.ok()) return Annotate(schedule.status(), "--lr-schedule");
  return schedule;
}

}  // namespace

std::vector<std::string> TrainLoopFlags() {
  return {"accumulate",    "precision",     "clip_norm", "lr_schedule",
          "warmup_epochs", "on_non_finite", "device"};
}

absl::StatusOr<train::TrainLoopOptions> TrainLoopOptionsFromFlags(int epochs) {
  train::TrainLoopOptions options;
  options.accumulate = absl::GetFlag(FLAGS_accumulate);
  if (options.accumulate < 1) {
    return Expected("accumulate", absl::StrCat(options.accumulate),
                    "1 batch or more");
  }
  const std::string precision = absl::GetFlag(FLAGS_precision);
  if (precision == "bfloat16") {
    options.precision = train::Precision::kBfloat16;
  } else if (precision == "float16") {
    options.precision = train::Precision::kFloat16;
  } else if (precision != "float32") {
    return Expected("precision", precision, "float32, bfloat16 or float16");
  }
  options.clip_norm = absl::GetFlag(FLAGS_clip_norm);
  if (!std::isfinite(options.clip_norm) || options.clip_norm < 0) {
    return Expected("clip-norm", absl::StrCat(options.clip_norm),
                    "a number above 0, or 0 for none");
  }
  const std::string on_non_finite = absl::GetFlag(FLAGS_on_non_finite);
  if (on_non_finite == "skip") {
    options.on_non_finite = train::OnNonFinite::kSkip;
  } else if (on_non_finite != "error") {
    return Expected("on-non-finite", on_non_finite, "error or skip");
  }
  MR_ASSIGN_OR_RETURN(options.schedule, ScheduleFromFlags(epochs));
  options.schedule_unit = train::ScheduleUnit::kEpoch;
  return options;
}

absl::StatusOr<std::string> DeviceFromFlags() {
  const std::string device = absl::GetFlag(FLAGS_device);
  absl::string_view index = device;
  int number = 0;
  if (device == "auto" || device == "cpu" || device == "cuda" ||
      (absl::ConsumePrefix(&index, "cuda:") &&
       absl::SimpleAtoi(index, &number) && number >= 0)) {
    return device;
  }
  return Expected("device", device, "auto, cpu, cuda or cuda:N");
}

}  // namespace miniray::ml
