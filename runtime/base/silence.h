// How long the other end of a connection may give no sign of life before the
// connection is given up and made anew: one setting of a process, for its gRPC
// channels and servers and its links.

#ifndef MINIRAY_RUNTIME_BASE_SILENCE_H_
#define MINIRAY_RUNTIME_BASE_SILENCE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace miniray {

// Holds such a time, e.g. "1m"; children inherit it. `miniray start
// --silence_timeout` sets it for a head or a node and what runs there.
inline constexpr char kSilenceTimeoutVariable[] = "MINIRAY_SILENCE_TIMEOUT";

// gRPC sends no more than one ping a second, and two have room in it.
inline constexpr absl::Duration kMinSilenceTimeout = absl::Seconds(2);
inline constexpr absl::Duration kMaxSilenceTimeout = absl::Hours(24);
inline constexpr absl::Duration kDefaultSilenceTimeout = absl::Seconds(20);

// Errors: INVALID_ARGUMENT, with what is allowed.
absl::StatusOr<absl::Duration> ParseSilenceTimeout(absl::string_view text);

// What the variable said when this was first called, else the default; the log
// has a line if what it says makes no sense.
absl::Duration SilenceTimeout();

// Between two signs of life to whoever listens: a quarter of the timeout, but
// never more than of the default, so that a process with a longer one and one
// without get on.
absl::Duration SignOfLifePeriod();

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_SILENCE_H_
