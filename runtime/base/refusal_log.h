// One line in the log for each request that was refused for want of the right
// token, certificate, host or origin. A flood of them cannot fill the disk: at
// first each has its line, then ten a second have, and the others are counted.

#ifndef MINIRAY_RUNTIME_BASE_REFUSAL_LOG_H_
#define MINIRAY_RUNTIME_BASE_REFUSAL_LOG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace miniray {

// Lines that may come at once, and that come back each second.
inline constexpr int kRefusalBurst = 100;
inline constexpr int kRefusalsPerSecond = 10;

// Decides which refusals get a line. Not thread-safe.
class RefusalLimiter {
 public:
  // Returns how many went without a line since the last that had one, or
  // nothing if this one is to go without as well.
  std::optional<int64_t> Admit(absl::Time now);

 private:
  double lines_ = kRefusalBurst;
  absl::Time last_ = absl::InfinitePast();
  int64_t silent_ = 0;
};

// "refused WHAT from PEER: WHY". `peer`, `what` and `why` may hold what the
// peer sent, but never a token, right or wrong; they are shortened, and what is
// not printable ASCII becomes '?'. Thread-safe.
void LogRefusal(absl::string_view peer, absl::string_view what,
                absl::string_view why);

// The line's text, for tests.
std::string RefusalText(absl::string_view peer, absl::string_view what,
                        absl::string_view why, int64_t silent);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_REFUSAL_LOG_H_
