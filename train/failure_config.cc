#include "train/failure_config.h"

#include "absl/strings/str_cat.h"

namespace miniray::train {

absl::Status Validate(const FailureConfig& config) {
  if (config.max_failures < -1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "failure.max_failures must be at least 0, or -1 for any number; got ",
        config.max_failures));
  }
  if (config.hang_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("failure.hang_timeout must be above 0, got ",
                     absl::FormatDuration(config.hang_timeout)));
  }
  if (config.warn_after <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("failure.warn_after must be above 0, got ",
                     absl::FormatDuration(config.warn_after)));
  }
  return absl::OkStatus();
}

}  // namespace miniray::train
