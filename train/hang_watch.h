// Tells which of several workers have stopped making progress.

#ifndef MINIRAY_TRAIN_HANG_WATCH_H_
#define MINIRAY_TRAIN_HANG_WATCH_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "train/epoch_meter.h"

namespace miniray::train {

// Watches one call to each of the workers. Not thread-safe.
class HangWatch {
 public:
  // timeout, warn_after: see FailureConfig.
  // asks: the workers have GetProgress. One that does not answer that makes no
  //   progress either.
  HangWatch(absl::Duration timeout, absl::Duration warn_after, bool asks,
            size_t num_workers);

  // From one Look to the next; infinite if both times are.
  absl::Duration turn() const;

  // Returns the first worker that has made no progress for the timeout, of
  // those that are not done yet. Does not block.
  std::optional<size_t> Look(const std::vector<AnyActorHandle>& workers,
                             const std::vector<bool>& done);

  // As of the last Look: those of them that have made no progress for
  // warn_after, and for how long. Each is told of once in so much time.
  std::vector<std::pair<size_t, absl::Duration>> Stalled(
      const std::vector<bool>& done);

  // All are taken to have made progress just now: nobody has looked, or one of
  // them is another.
  void Restart();

 private:
  // A clock that somebody sets makes nobody hang.
  using Clock = std::chrono::steady_clock;

  struct Watched {
    Clock::time_point last;  // When it made progress.
    Clock::time_point told;  // When it did, or Stalled has told of it.
    std::optional<Progress> seen;
    ObjectRef<Progress> question;  // Empty if none is open.
  };

  // Takes an answer, and asks again.
  void Ask(const AnyActorHandle& worker, Clock::time_point now,
           Watched* watched);

  const absl::Duration timeout_;
  const absl::Duration warn_after_;
  const bool asks_;
  std::vector<Watched> watched_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_HANG_WATCH_H_
