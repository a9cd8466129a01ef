#include "runtime/base/steady_time.h"

#include <time.h>

#include <algorithm>

#include "absl/time/clock.h"

namespace miniray {
namespace {

// As good as for ever, and not too much for std::chrono.
constexpr absl::Duration kLongest = absl::Hours(24 * 365);

absl::Duration SinceBoot() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace

absl::Time SteadyNow() {
  static const absl::Time boot = absl::Now() - SinceBoot();
  return boot + SinceBoot();
}

void SteadyNotification::Notify() {
  // Under the lock: whoever has seen it may destroy this.
  const std::lock_guard<std::mutex> lock(mu_);
  notified_ = true;
  changed_.notify_all();
}

bool SteadyNotification::HasBeenNotified() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return notified_;
}

bool SteadyNotification::WaitForNotificationWithTimeout(
    absl::Duration timeout) const {
  std::unique_lock<std::mutex> lock(mu_);
  return changed_.wait_for(
      lock, absl::ToChronoNanoseconds(std::min(timeout, kLongest)),
      [this] { return notified_; });
}

}  // namespace miniray
