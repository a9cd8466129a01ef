// Time that does not leap when the clock of the machine is set. Abseil's waits
// with a timeout go by that clock, and last as much longer as it is set back.

#ifndef MINIRAY_RUNTIME_BASE_STEADY_TIME_H_
#define MINIRAY_RUNTIME_BASE_STEADY_TIME_H_

#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace miniray {

// What the machine's clock said when this was first called, and what has passed
// since, also while the machine was suspended. For periods; what is shown or
// kept has absl::Now.
absl::Time SteadyNow();

// As absl::Notification. Thread-safe.
class SteadyNotification {
 public:
  void Notify();
  bool HasBeenNotified() const;
  // Blocks for `timeout` at most; returns whether it has been notified. The
  // time for which the machine is suspended does not count.
  bool WaitForNotificationWithTimeout(absl::Duration timeout) const;

 private:
  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  bool notified_ = false;  // Guarded by mu_.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_STEADY_TIME_H_
