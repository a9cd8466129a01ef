// What a report of figures says, in a form that tests can compare.

#ifndef MINIRAY_TESTS_RUNTIME_METRICS_TOLD_H_
#define MINIRAY_TESTS_RUNTIME_METRICS_TOLD_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/metrics.pb.h"

namespace miniray {

// What is told of a histogram: how many values it has counted, or their sum.
enum class OfHistograms { kCount, kSumSeconds };

// The figures by "name label=value ...", with the labels in the report's order.
inline std::map<std::string, double> Told(
    const v1::MetricReport& report,
    OfHistograms of_histograms = OfHistograms::kCount) {
  std::map<std::string, double> told;
  for (const v1::MetricFamily& family : report.families()) {
    for (const v1::MetricSeries& series : family.series()) {
      std::string name = family.name();
      for (const v1::MetricLabel& label : series.labels()) {
        absl::StrAppend(&name, " ", label.name(), "=", label.value());
      }
      double& figure = told[name];
      if (family.kind() != v1::METRIC_KIND_HISTOGRAM) {
        figure = series.value();
      } else if (of_histograms == OfHistograms::kSumSeconds) {
        figure = series.sum_seconds();
      } else {
        figure = 0;
        for (const uint64_t count : series.counts()) {
          figure += static_cast<double>(count);
        }
      }
    }
  }
  return told;
}

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_METRICS_TOLD_H_
