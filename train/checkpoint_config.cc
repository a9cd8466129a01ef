#include "train/checkpoint_config.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace miniray::train {

absl::Status Validate(const CheckpointConfig& config) {
  if (config.frequency < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint.frequency must be at least 0 epochs, got ",
                     config.frequency));
  }
  if (config.num_to_keep < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint.num_to_keep must be at least 0, got ", config.num_to_keep));
  }
  const bool chooses = config.num_to_keep > 0 || !config.score_metric.empty();
  if (chooses && !config.enabled()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint.", config.num_to_keep > 0 ? "num_to_keep" : "score_metric",
        " has no effect where no checkpoint is taken; set checkpoint.frequency "
        "or checkpoint.at_end"));
  }
  if (config.resume.empty()) {
    return absl::InvalidArgumentError(
        "checkpoint.resume must be 'never', 'auto' or the path of a "
        "checkpoint; it is empty");
  }
  return absl::OkStatus();
}

double ScoreOf(const CheckpointConfig& config, const Metrics& metrics) {
  const auto found = metrics.find(config.score_metric);
  if (found == metrics.end() || std::isnan(found->second)) {
    return -std::numeric_limits<double>::infinity();
  }
  return config.score_order == ScoreOrder::kMax ? found->second
                                                : -found->second;
}

std::string MissingScoreWarning(const CheckpointConfig& config,
                                const Metrics& metrics,
                                absl::string_view whose) {
  const std::string& name = config.score_metric;
  if (name.empty() || metrics.contains(name)) return "";
  std::vector<std::string> names;
  for (const auto& [metric, value] : metrics) names.push_back(metric);
  return absl::StrCat("checkpoint.score_metric is '", name, "', which ", whose,
                      " lack; they have ",
                      names.empty() ? "none" : absl::StrJoin(names, ", "));
}

}  // namespace miniray::train
