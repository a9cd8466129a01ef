// The calls of this process's actors, counted for Prometheus: by class and
// method, how long they waited and ran; by class, how many wait and run, and
// which way their bytes went.

#ifndef MINIRAY_RUNTIME_ACTOR_CALL_METER_H_
#define MINIRAY_RUNTIME_ACTOR_CALL_METER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "runtime/actor/call_session.h"
#include "runtime/actor/metric_reporter.h"
#include "runtime/metrics/process_metrics.h"

namespace miniray {
namespace internal {

// What a class's actors are at.
struct CallLoad {
  int64_t waiting = 0;
  int64_t running = 0;
};

// Of one class, for all of its actors. Thread-safe; to count a call costs four
// additions.
class CallMeter {
 public:
  // Of one method.
  struct Method {
    MetricCounter& calls;
    MetricCounter& failures;
    MetricHistogram& queue_time;
    MetricHistogram& run_time;
  };

  CallMeter(ProcessMetrics* metrics, std::string class_name,
            std::shared_ptr<MetricReporter> reporter);

  // Finds or makes it; it lives as long as this.
  Method* Find(absl::string_view method) ABSL_LOCKS_EXCLUDED(mu_);

  void CountCall(Method* method, int64_t queue_us, int64_t run_us,
                 bool failed) {
    method->queue_time.RecordMicros(queue_us);
    method->run_time.RecordMicros(run_us);
    if (failed) method->failures.Add();
    reporter_->Touch();
  }
  void CountBytes(CallPath path, bool sent, uint64_t bytes) {
    bytes_[static_cast<int>(path)][sent]->Add(bytes);
  }
  // A call has come that may have to wait.
  void OnQueued() { reporter_->Touch(); }

  void Update(const CallLoad& load) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  ProcessMetrics& metrics_;
  const std::string class_name_;
  const std::shared_ptr<MetricReporter> reporter_;
  MetricGauge& waiting_;
  MetricGauge& running_;
  MetricCounter* bytes_[3][2];  // By path, and whether sent.

  absl::Mutex mu_;
  std::deque<Method> methods_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Method*, std::less<>> by_name_ ABSL_GUARDED_BY(mu_);
};

// Those of a process. Thread-safe.
class CallMeters {
 public:
  // `metrics` outlives it.
  CallMeters(ProcessMetrics* metrics, std::shared_ptr<MetricReporter> reporter)
      : metrics_(*metrics), reporter_(std::move(reporter)) {}

  // class_name: short.
  std::shared_ptr<CallMeter> Of(absl::string_view class_name)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Takes note of what the classes are at; those that are not in there have
  // nothing to do. Returns whether any has.
  bool Update(const std::map<std::string, CallLoad>& load)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  ProcessMetrics& metrics_;
  const std::shared_ptr<MetricReporter> reporter_;
  absl::Mutex mu_;
  std::map<std::string, std::shared_ptr<CallMeter>, std::less<>> meters_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_CALL_METER_H_
