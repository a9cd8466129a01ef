// Judges from what became of a lease's renewals for how long the head has not
// been heard of, and says when that is too long.

#ifndef MINIRAY_RUNTIME_WORKER_HEAD_WATCH_H_
#define MINIRAY_RUNTIME_WORKER_HEAD_WATCH_H_

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"
#include "runtime/base/net.h"

namespace miniray {

// Has a thread of its own, which dials the head to tell a dead one from a
// silent one, and calls back. Thread-safe.
class HeadWatch {
 public:
  struct Options {
    HostPort head;
    // Silence after which what the node runs is ended; zero: three leases. The
    // head may live and have started it elsewhere long ago.
    absl::Duration fence_after;
    // The same where the head's machine says that nobody listens there: a head
    // that is dead has started nothing elsewhere, so only its return is waited
    // for.
    absl::Duration headless_timeout = absl::Hours(1);
  };

  // on_cut_off: one of the two times is over; `why`: "no contact with the head
  // for 30s". Called by the watch's thread, and may take its time.
  HeadWatch(Options options,
            std::function<void(const std::string& why)> on_cut_off);
  ~HeadWatch();

  // What became of a renewal: see LeaseKeeper::Listener. Never blocks.
  void OnRenewal(const grpc::Status& status, absl::Duration lease)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What came since the thread looked last.
  struct News {
    bool heard = false;      // The head answered ...
    absl::Duration unheard;  // ... and then, or since last time, it did not.
    std::optional<grpc::Status> failure;  // The last one since it answered.
    absl::Duration lease;
  };

  void Loop() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether nobody listens where the head was, as far as `news` give reason to
  // look.
  bool HeadIsGone(const News& news) const;

  const Options options_;
  const std::function<void(const std::string& why)> on_cut_off_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration last_ ABSL_GUARDED_BY(mu_);  // On the monotonic clock.
  std::optional<News> news_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_HEAD_WATCH_H_
