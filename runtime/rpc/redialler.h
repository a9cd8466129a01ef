// Dials a head that is away, for all of a process who wait for it.

#ifndef MINIRAY_RUNTIME_RPC_REDIALLER_H_
#define MINIRAY_RUNTIME_RPC_REDIALLER_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "runtime/base/backoff.h"

namespace miniray {

inline constexpr absl::Duration kMaxRedialPause = absl::Seconds(1);

// The pauses between tries grow (see Backoff) until one succeeds; they are
// shared, so that many who wait dial no more often than one.
//
// Thread-safe.
class Redialler {
 public:
  // `channel` is of MakeDialledChannel or MakeHeadChannel, and outlives it.
  explicit Redialler(grpc::Channel* channel);

  // Waits until the channel is connected, at most until `deadline`; returns
  // whether it is.
  bool AwaitConnected(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // No pause is longer from now on. At most kMaxRedialPause.
  void SetMaxPause(absl::Duration pause) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Dials if it is time. Returns after how long to look again.
  absl::Duration Try() ABSL_LOCKS_EXCLUDED(mu_);

  grpc::Channel* const channel_;
  absl::Mutex mu_;
  Backoff backoff_ ABSL_GUARDED_BY(mu_);
  absl::Time next_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // SteadyNow's
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_REDIALLER_H_
