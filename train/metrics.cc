#include "train/metrics.h"

#include <algorithm>
#include <cmath>
#include <set>

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
  if (const auto skipped = sums.find(kSkippedStepsMetric);
      skipped != sums.end()) {
    result[kSkippedStepsMetric] = skipped->second.plain;
  }
  return result;
}

MetricsRange RangeOfMetrics(const std::vector<Metrics>& per_worker) {
  // As in the mean: samples weigh only if every worker reports some number.
  bool weighted = true;
  for (const Metrics& metrics : per_worker) {
    weighted = weighted && metrics.count(kSamplesMetric) > 0;
  }
  auto counts = [&](const Metrics& metrics, const std::string& name) {
    return !weighted || name == kSamplesMetric ||
           metrics.at(kSamplesMetric) > 0;
  };
  // Metrics that only workers without samples report.
  std::set<std::string> of_all;
  for (const Metrics& metrics : per_worker) {
    for (const auto& [name, value] : metrics) of_all.insert(name);
  }
  for (const Metrics& metrics : per_worker) {
    for (const auto& [name, value] : metrics) {
      if (counts(metrics, name)) of_all.erase(name);
    }
  }
  MetricsRange range;
  for (const Metrics& metrics : per_worker) {
    for (const auto& [name, value] : metrics) {
      if (!counts(metrics, name) && of_all.count(name) == 0) continue;
      double& min = range.min.emplace(name, value).first->second;
      double& max = range.max.emplace(name, value).first->second;
      // Once NaN, neither compares as less or greater again.
      if (value < min || std::isnan(value)) min = value;
      if (value > max || std::isnan(value)) max = value;
    }
  }
  return range;
}

std::string MetricsText(const Metrics& metrics) {
  return absl::StrJoin(
      metrics, " ", [](std::string* out, const Metrics::value_type& metric) {
        absl::StrAppendFormat(out, "%s=%.5g", metric.first, metric.second);
      });
}

}  // namespace miniray::train
