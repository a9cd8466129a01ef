#include "train/train_loop_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

absl::Status CheckLimit(absl::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value,
                   "; expected a finite number above 0, or 0 for none"));
}

}  // namespace

absl::Status Validate(const TrainLoopOptions& options) {
  if (options.accumulate < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "accumulate is ", options.accumulate, "; expected 1 batch or more"));
  }
  MR_RETURN_IF_ERROR(CheckLimit("clip_norm", options.clip_norm));
  MR_RETURN_IF_ERROR(CheckLimit("clip_value", options.clip_value));
  if (options.loss_scaler.has_value()) {
    MR_RETURN_IF_ERROR(Validate(*options.loss_scaler));
  }
  return Validate(options.schedule);
}

}  // namespace miniray::train
