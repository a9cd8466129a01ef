#include "train/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "train/gradient_clipping.h"

namespace miniray::train {
namespace {

absl::Status Invalid(absl::string_view field, double value,
                     absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "loss_scaler: ", field, " is ", value, "; expected ", expected));
}

}  // namespace

absl::Status Validate(const LossScalerOptions& options) {
  if (!std::isfinite(options.min_scale) || options.min_scale <= 0) {
    return Invalid("min_scale", options.min_scale, "a finite number above 0");
  }
  if (!std::isfinite(options.initial_scale) ||
      options.initial_scale < options.min_scale) {
    return Invalid("initial_scale", options.initial_scale,
                   absl::StrCat("at least min_scale, ", options.min_scale));
  }
  if (!std::isfinite(options.growth_factor) || options.growth_factor <= 1) {
    return Invalid("growth_factor", options.growth_factor,
                   "a finite number above 1");
  }
  if (!(options.backoff_factor > 0 && options.backoff_factor < 1)) {
    return Invalid("backoff_factor", options.backoff_factor,
                   "more than 0 and less than 1");
  }
  if (options.growth_interval < 1) {
    return Invalid("growth_interval",
                   static_cast<double>(options.growth_interval), "1 or more");
  }
  return absl::OkStatus();
}

bool LossScaler::Unscale(const std::vector<at::Tensor>& gradients,
                         double divisor) const {
  if (!AllFinite(gradients)) return false;
  ScaleGradients(gradients, 1 / (state_.scale * divisor));
  return true;
}

void LossScaler::Update(bool finite) {
  if (!finite) {
    state_.scale =
        std::max(state_.scale * options_.backoff_factor, options_.min_scale);
    state_.good_steps = 0;
    return;
  }
  if (++state_.good_steps < options_.growth_interval) return;
  state_.good_steps = 0;
  const double grown = state_.scale * options_.growth_factor;
  // Losses are float32, and so is what they are multiplied by.
  if (std::isfinite(static_cast<float>(grown))) state_.scale = grown;
}

}  // namespace miniray::train
