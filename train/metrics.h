// Numbers that workers report for an epoch, their mean and their range.

#ifndef MINIRAY_TRAIN_METRICS_H_
#define MINIRAY_TRAIN_METRICS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace miniray::train {

// By name, e.g. {"loss", 0.3}.
using Metrics = std::map<std::string, double>;

// What else a worker has to tell of an epoch, by name: {"best game", "7-3"}.
using Notes = std::map<std::string, std::string>;

// The metric that says how many samples a worker's other metrics stand for.
inline constexpr char kSamplesMetric[] = "samples";

// The metric that says how many steps a worker left out (OnNonFinite::kSkip).
inline constexpr char kSkippedStepsMetric[] = "skipped_steps";

// Returns the metrics of all workers as one.
//
// Each metric is the mean over the workers that report it: weighted by
// "samples" if every worker reports that, plain otherwise. "samples" itself and
// "skipped_steps" are sums. A metric that is NaN for one worker is NaN.
//
// Errors: INVALID_ARGUMENT, a worker reports "samples" below zero, infinite or
// NaN.
absl::StatusOr<Metrics> AverageMetrics(const std::vector<Metrics>& per_worker);

// The least and the greatest value of each metric.
struct MetricsRange {
  Metrics min;
  Metrics max;
};

// Returns the range of each metric over the workers that count in its mean: a
// worker with 0 "samples" counts only in "samples", unless all have 0. A metric
// that is NaN for one of them is NaN in both.
//
// REQUIRES: AverageMetrics takes `per_worker`.
MetricsRange RangeOfMetrics(const std::vector<Metrics>& per_worker);

// "d_loss=0.693 g_loss=0.71", for people.
std::string MetricsText(const Metrics& metrics);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_METRICS_H_
