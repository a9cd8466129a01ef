// Adds up what the processes of a node count (ProcessMetrics), also of those
// that have ended: a counter of the node never falls because a process did.

#ifndef MINIRAY_RUNTIME_METRICS_METRIC_TOTALS_H_
#define MINIRAY_RUNTIME_METRICS_METRIC_TOTALS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "proto/metrics.pb.h"
#include "runtime/metrics/metric_labels.h"
#include "runtime/metrics/metric_page.h"
#include "runtime/metrics/process_metrics.h"

namespace miniray {

// Thread-safe. Processes run code of users: whatever they report, memory and
// page stay bounded, and the page stays one that Prometheus reads.
class MetricTotals {
 public:
  // More metrics are left out; more series of one all count in one, whose
  // labels are "(other)".
  static constexpr size_t kMaxMetrics = 300;
  static constexpr size_t kMaxSeries = 256;          // Of one metric.
  static constexpr size_t kMaxProcessSeries = 4096;  // Of one process.

  // What the process has counted by now. Parts that make no sense are left out:
  // names that are not Prometheus's, a metric of another kind than it was.
  void Add(const std::string& process, const v1::MetricReport& report)
      ABSL_LOCKS_EXCLUDED(mu_);
  // It has ended: its gauges are gone, what it counted stays.
  void End(const std::string& process) ABSL_LOCKS_EXCLUDED(mu_);

  // What a living process told last of a counter or gauge, over all of its
  // series; 0 if nothing.
  double Sum(const std::string& process, const std::string& metric) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Adds all metrics but those that the page has.
  void AddTo(MetricPage* page) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Figures {
    double value = 0;
    std::array<uint64_t, MetricHistogram::kBuckets> counts = {};
    double sum_seconds = 0;
  };
  struct Family {
    std::string help;
    v1::MetricKind kind = v1::METRIC_KIND_UNSPECIFIED;
    // Counters and histograms, over all processes since the daemon began.
    // Gauges are looked up in those that live.
    std::map<MetricLabels, Figures> series;
  };
  // A metric's name, with the labels that the process gave.
  using Key = std::pair<std::string, MetricLabels>;

  Family* Find(const v1::MetricFamily& family)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The labels if they have a series, or there is room for one more.
  static MetricLabels Place(const std::map<MetricLabels, Figures>& series,
                            MetricLabels labels);

  mutable absl::Mutex mu_;
  std::map<std::string, Family, std::less<>> families_ ABSL_GUARDED_BY(mu_);
  // What each living process told last.
  std::map<std::string, std::map<Key, Figures>> processes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_METRICS_METRIC_TOTALS_H_
