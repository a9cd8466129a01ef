// What a process counts, for Prometheus. Whoever has something to count asks
// once for a series and keeps it:
//
//   static MetricHistogram& seconds = ProcessMetrics::Get().Histogram(
//       "miniray_sync_seconds", "How long synchronisations took.",
//       {{"phase", "pull"}});
//   seconds.Record(duration);
//
// In an actor's process the figures go to the node's worker daemon about once a
// second while there are calls, and are part of its /metrics, added up over the
// node's processes. Other processes (drivers) show them nowhere.

#ifndef MINIRAY_RUNTIME_METRICS_PROCESS_METRICS_H_
#define MINIRAY_RUNTIME_METRICS_PROCESS_METRICS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/metrics.pb.h"
#include "runtime/metrics/metric_labels.h"

namespace miniray {

// The three kinds of series. Thread-safe, without locks: to count costs a few
// nanoseconds.

// Only grows.
class MetricCounter {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  // For what is counted elsewhere; never less than before.
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

class MetricGauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_ = 0;
};

// How long things took.
class MetricHistogram {
 public:
  // Microseconds: 10 us to 5 min in steps of about three. What took exactly as
  // long as a bound counts below it.
  static constexpr std::array<int64_t, 16> kBounds = {
      10,         30,         100,         300,        1'000,     3'000,
      10'000,     30'000,     100'000,     300'000,    1'000'000, 3'000'000,
      10'000'000, 30'000'000, 100'000'000, 300'000'000};
  // Below each bound, and beyond all.
  static constexpr size_t kBuckets = kBounds.size() + 1;

  void Record(absl::Duration duration) {
    RecordMicros(absl::ToInt64Microseconds(duration));
  }
  // Less than none, as where the clock was set back, counts as none.
  void RecordMicros(int64_t micros);

  std::array<uint64_t, kBuckets> counts() const;
  uint64_t count() const;  // Over all buckets.
  double sum_seconds() const {
    return static_cast<double>(sum_micros_.load(std::memory_order_relaxed)) /
           1e6;
  }

 private:
  std::array<std::atomic<uint64_t>, kBuckets> counts_ = {};
  std::atomic<uint64_t> sum_micros_ = 0;
};

// Thread-safe.
class ProcessMetrics {
 public:
  // Bounds on what one process may have. More series of a metric all count in
  // one, whose labels are "(other)"; more metrics are counted for nobody.
  static constexpr size_t kMaxMetrics = 100;
  static constexpr size_t kMaxSeries = 128;  // Of one metric.
  static constexpr size_t kMaxLabelBytes = 128;

  // This process's.
  static ProcessMetrics& Get();

  // Return the series, which lives as long as this. Names follow Prometheus's
  // conventions: "miniray_" or the program's own prefix, base units,
  // "..._total" for counters, "..._seconds" for histograms. A metric has one
  // kind, and its first `help`.
  MetricCounter& Counter(absl::string_view name, absl::string_view help,
                         const MetricLabels& labels = {})
      ABSL_LOCKS_EXCLUDED(mu_);
  MetricGauge& Gauge(absl::string_view name, absl::string_view help,
                     const MetricLabels& labels = {}) ABSL_LOCKS_EXCLUDED(mu_);
  MetricHistogram& Histogram(absl::string_view name, absl::string_view help,
                             const MetricLabels& labels = {})
      ABSL_LOCKS_EXCLUDED(mu_);

  // What changed since the last time; empty: nothing did.
  v1::MetricReport TakeChanges() ABSL_LOCKS_EXCLUDED(mu_);
  // What was taken did not arrive: the next changes are all that was ever told.
  void TellAgain() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Of the kind of its family; the others are not used.
  struct Series {
    MetricCounter counter;
    MetricGauge gauge;
    MetricHistogram histogram;
    // The counter's value, the gauge's bits or the histogram's count when it
    // was told; nothing: it is to be told in any case.
    std::optional<uint64_t> told = 0;
    bool ever_told = false;
  };
  struct Family {
    std::string help;
    v1::MetricKind kind;
    std::map<MetricLabels, std::unique_ptr<Series>> series;
  };

  static uint64_t Version(const Family& family, const Series& series);
  Series& Find(v1::MetricKind kind, absl::string_view name,
               absl::string_view help, const MetricLabels& labels)
      ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  std::map<std::string, Family, std::less<>> families_ ABSL_GUARDED_BY(mu_);
  Series unheard_;  // For which there is no room.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_METRICS_PROCESS_METRICS_H_
