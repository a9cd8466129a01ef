// Tells the worker daemon what this process has counted (ProcessMetrics).

#ifndef MINIRAY_RUNTIME_ACTOR_METRIC_REPORTER_H_
#define MINIRAY_RUNTIME_ACTOR_METRIC_REPORTER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "proto/worker.pb.h"
#include "runtime/metrics/process_metrics.h"

namespace miniray {
namespace internal {

// Reports about once a second while there is something to tell; a process that
// does nothing does not wake up for it. Thread-safe.
class MetricReporter : public std::enable_shared_from_this<MetricReporter> {
 public:
  // Returns whether it was sent. `wait`: it blocks until it is; else it is not
  // sent where that would block.
  using Send = std::function<bool(const v1::ActorEvent&, bool wait)>;
  // Brings figures up to date that are looked up, not counted. Returns whether
  // they may change while nothing is counted. Must not block.
  using Update = std::function<bool()>;

  // `metrics` outlives it.
  MetricReporter(ProcessMetrics* metrics, Update update, Send send)
      : metrics_(*metrics),
        update_(std::move(update)),
        send_(std::move(send)) {}

  // There is, or will be, something to tell. Costs next to nothing.
  void Touch() {
    if (!scheduled_.load()) Schedule();
  }

  // Tells what there is; before the end of the process.
  void Flush();

 private:
  void Schedule();
  void TrySend();

  ProcessMetrics& metrics_;
  const Update update_;
  const Send send_;
  std::atomic<bool> scheduled_ = false;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_METRIC_REPORTER_H_
