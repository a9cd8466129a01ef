#include "train/metrics.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace miniray::train {

absl::StatusOr<Metrics> AverageMetrics(const std::vector<Metrics>& per_worker) {
  std::vector<double> weights;
  double total_samples = 0;
  for (size_t i = 0; i < per_worker.size(); ++i) {
    auto samples = per_worker[i].find(kSamplesMetric);
    if (samples == per_worker[i].end()) continue;
    if (!std::isfinite(samples->second) || samples->second < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", i, " reports ", samples->second,
                       " samples; expected a count of 0 or more"));
    }
    weights.push_back(samples->second);
    total_samples += samples->second;
  }
  const bool weighted = weights.size() == per_worker.size();
  if (!weighted) weights.assign(per_worker.size(), 1);

  struct Sum {
    double values = 0;  // Weighted.
    double weights = 0;
    double plain = 0;  // For metrics whose reporters all have no samples.
    int count = 0;
  };
  std::map<std::string, Sum> sums;
  for (size_t i = 0; i < per_worker.size(); ++i) {
    for (const auto& [name, value] : per_worker[i]) {
      Sum& sum = sums[name];
      // A worker without samples may report 0/0; it does not count.
      if (weights[i] > 0) sum.values += weights[i] * value;
      sum.weights += weights[i];
      sum.plain += value;
      ++sum.count;
    }
  }
  Metrics result;
  for (const auto& [name, sum] : sums) {
    result[name] =
        sum.weights > 0 ? sum.values / sum.weights : sum.plain / sum.count;
  }
  if (sums.count(kSamplesMetric) > 0) result[kSamplesMetric] = total_samples;
  return result;
}

std::string MetricsText(const Metrics& metrics) {
  return absl::StrJoin(
      metrics, " ", [](std::string* out, const Metrics::value_type& metric) {
        absl::StrAppendFormat(out, "%s=%.5g", metric.first, metric.second);
      });
}

}  // namespace miniray::train
