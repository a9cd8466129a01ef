// A page that Prometheus reads: metrics with their series, in its text format
// (version 0.0.4).

#ifndef MINIRAY_RUNTIME_METRICS_METRIC_PAGE_H_
#define MINIRAY_RUNTIME_METRICS_METRIC_PAGE_H_

#include <prometheus/metric_family.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/metrics/metric_labels.h"

namespace miniray {

// "text/plain; ...", for the header Content-Type.
extern const char kMetricPageType[];

// Not thread-safe.
class MetricPage {
 public:
  // Each adds a series to the metric `name`, which begins with its first one.
  // Names are those that Prometheus takes (IsMetricName); values of labels may
  // be anything. REQUIRES: one kind for all series of a metric, no series
  // twice.
  void Counter(absl::string_view name, absl::string_view help, double value,
               const MetricLabels& labels = {});
  void Gauge(absl::string_view name, absl::string_view help, double value,
             const MetricLabels& labels = {});
  // counts: of values up to bounds[i] (and beyond bounds[i-1]); the last one of
  // values beyond all. sum: of all values. REQUIRES: bounds grow, and there is
  // one count more.
  void Histogram(absl::string_view name, absl::string_view help,
                 absl::Span<const double> bounds,
                 absl::Span<const uint64_t> counts, double sum,
                 const MetricLabels& labels = {});

  bool Has(absl::string_view name) const { return places_.contains(name); }

  std::string Text() const;

 private:
  prometheus::ClientMetric& Add(absl::string_view name, absl::string_view help,
                                prometheus::MetricType type,
                                const MetricLabels& labels);

  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string, size_t, std::less<>> places_;  // In families_, by name.
};

// Letters, digits and "_", with no digit first. (Prometheus also takes ":",
// which is for its own rules.)
bool IsMetricName(absl::string_view name);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_METRICS_METRIC_PAGE_H_
