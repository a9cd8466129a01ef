#include "runtime/actor/metric_reporter.h"

#include "absl/time/time.h"
#include "runtime/base/background.h"

namespace miniray {
namespace internal {
namespace {

// Between two reports; internal.
constexpr absl::Duration kPeriod = absl::Seconds(1);

}  // namespace

void MetricReporter::Schedule() {
  if (scheduled_.exchange(true)) return;
  RunInBackground(
      [weak = weak_from_this()] {
        // In a thread that must not block: a daemon that stands still reads
        // nothing.
        if (auto self = weak.lock()) self->TrySend();
      },
      kPeriod);
}

void MetricReporter::TrySend() {
  // First: what is counted from here on is in this report or the next.
  scheduled_.exchange(false);
  bool again = update_();
  v1::ActorEvent event;
  *event.mutable_metrics() = metrics_.TakeChanges();
  if (event.metrics().families_size() > 0 && !send_(event, /*wait=*/false)) {
    metrics_.TellAgain();
    again = true;
  }
  if (again) Touch();
}

void MetricReporter::Flush() {
  update_();
  v1::ActorEvent event;
  *event.mutable_metrics() = metrics_.TakeChanges();
  if (event.metrics().families_size() > 0) send_(event, /*wait=*/true);
}

}  // namespace internal
}  // namespace miniray
