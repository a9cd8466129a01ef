#include "runtime/worker/clock_offset.h"

#include <time.h>

namespace miniray {

void ClockOffset::Add(absl::Duration asked, absl::Duration answered,
                      absl::Time here, absl::Time there) {
  if (answered < asked) return;
  const absl::Duration half = (answered - asked) / 2;
  const Reading reading = {answered, here - half - there, half};
  if (const std::optional<Estimate> before = Get(answered)) {
    const absl::Duration apart =
        absl::AbsDuration(reading.ahead - before->ahead);
    if (apart > reading.error + before->error) readings_.clear();
  }
  readings_.push_back(reading);
  if (readings_.size() > kKept) readings_.pop_front();
}

std::optional<ClockOffset::Estimate> ClockOffset::Get(
    absl::Duration now) const {
  std::optional<Estimate> best;
  for (const Reading& reading : readings_) {
    const absl::Duration error = reading.error + kDrift * (now - reading.at);
    if (!best.has_value() || error < best->error) best = {reading.ahead, error};
  }
  return best;
}

absl::Duration ClockOffset::Steady() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace miniray
