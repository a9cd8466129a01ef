// Pauses between tries that fail: each is longer than the one before, up to a
// limit, and a part of it is chance, so that those who lost one peer together
// do not all come back at one moment.

#ifndef MINIRAY_RUNTIME_BASE_BACKOFF_H_
#define MINIRAY_RUNTIME_BASE_BACKOFF_H_

#include <random>

#include "absl/time/time.h"

namespace miniray {

// Not thread-safe.
class Backoff {
 public:
  // REQUIRES: first > 0.
  Backoff(absl::Duration first, absl::Duration max);

  // The pause before the next try. The n-th is between 0.75 and 1 times the
  // smaller of first * 2^(n-1) and max.
  absl::Duration Next();
  // A try went well: the next pause is the first again.
  void Reset() { next_ = first_; }
  void SetMax(absl::Duration max) { max_ = max; }

 private:
  const absl::Duration first_;
  absl::Duration max_;
  absl::Duration next_;
  std::minstd_rand random_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_BACKOFF_H_
