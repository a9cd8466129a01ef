// How far this machine's clock is ahead of another one's, from questions whose
// answers say what the other clock shows.
//
// What it showed lies between question and answer: half of the time in between
// is the most that a reading is off. Of the last readings the best one counts,
// so that a slow answer spoils nothing.
// Source: Cristian, Probabilistic clock synchronization, 1989.

#ifndef MINIRAY_RUNTIME_WORKER_CLOCK_OFFSET_H_
#define MINIRAY_RUNTIME_WORKER_CLOCK_OFFSET_H_

#include <deque>
#include <optional>

#include "absl/time/time.h"

namespace miniray {

// Not thread-safe.
class ClockOffset {
 public:
  // How much two clocks may drift apart: by this part of the time that passes.
  static constexpr double kDrift = 1e-4;
  // Readings that are kept.
  static constexpr int kKept = 16;

  struct Estimate {
    absl::Duration ahead;  // Of this clock.
    absl::Duration error;  // `ahead` is off by so much at most.
  };

  // A question left at `asked` and its answer was here at `answered`, both by
  // Steady(). `here` is what this machine's clock showed at `answered`, `there`
  // what the other one showed at a time in between. A reading that the earlier
  // ones exclude puts an end to them: a clock was set.
  void Add(absl::Duration asked, absl::Duration answered, absl::Time here,
           absl::Time there);

  // As of `now`, by Steady(); nothing before the first reading.
  std::optional<Estimate> Get(absl::Duration now) const;

  // A clock that nobody sets, and that goes on while the machine sleeps; it
  // begins anywhere.
  static absl::Duration Steady();

 private:
  struct Reading {
    absl::Duration at;
    absl::Duration ahead;
    absl::Duration error;  // Then.
  };

  std::deque<Reading> readings_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_CLOCK_OFFSET_H_
