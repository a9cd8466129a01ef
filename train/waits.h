// How trainers wait, and how long it took.

#ifndef MINIRAY_TRAIN_WAITS_H_
#define MINIRAY_TRAIN_WAITS_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace miniray::train {

// From one line in the log to the next that says who is waited for.
inline constexpr absl::Duration kReminderPeriod = absl::Minutes(5);

// How often a wait looks for a signal, or for what the head knows.
inline constexpr absl::Duration kSignalTurn = absl::Milliseconds(100);

// The same where training begins; a wait of one actor ends then, for another
// may have failed.
inline constexpr absl::Duration kStartTurn = absl::Milliseconds(200);

// The log tells after so long that training cannot begin yet.
inline constexpr absl::Duration kLogStartAfter = absl::Seconds(5);

inline double SecondsSince(absl::Time start) {
  return absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_WAITS_H_
