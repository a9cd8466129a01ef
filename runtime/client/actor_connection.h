// The calls of this process to one actor: finds the actor at the head, keeps
// one stream to it, and gives every call exactly one outcome.
//
// States: kIdle (no stream) -> kLooking (asks the head) -> kConnected -> kIdle
// again when the stream breaks and the actor lives on or restarts, or kDead for
// good. Calls made while looking wait and are sent in order. Calls that were on
// their way when the stream broke fail: whether they ran is unknown.

#ifndef MINIRAY_RUNTIME_CLIENT_ACTOR_CONNECTION_H_
#define MINIRAY_RUNTIME_CLIENT_ACTOR_CONNECTION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "proto/cluster.pb.h"
#include "proto/head.pb.h"
#include "runtime/client/call_state.h"
#include "runtime/client/client.h"

namespace miniray {
namespace internal {

// Thread-safe. Held by shared_ptr.
class ActorConnection : public std::enable_shared_from_this<ActorConnection> {
 public:
  // Asks the head for the actor's record, without blocking; `done` runs in
  // another thread, once.
  using Lookup = std::function<void(
      v1::GetActorRequest request,
      std::function<void(absl::StatusOr<v1::ActorInfo>)> done)>;

  ActorConnection(ActorIdentity actor, std::string token,
                  std::string head_address, Lookup lookup);
  ~ActorConnection();

  std::shared_ptr<CallState> Call(absl::string_view method, ArgumentList args);

  bool dead() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return state_ == State::kDead;
  }

  // Fails all calls, now and later, with `status`.
  void Close(absl::Status status);

 private:
  class Stream;
  enum class State { kIdle, kLooking, kConnected, kDead };
  struct PendingCall {
    uint64_t call_id;
    std::shared_ptr<CallState> state;
    absl::Cord bytes;  // Until it is sent.
  };
  // What is to be done once the lock is released.
  using Failures =
      std::vector<std::pair<std::shared_ptr<CallState>, absl::Status>>;

  void Look(int64_t min_version, absl::Duration wait)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnLookup(absl::StatusOr<v1::ActorInfo> info) ABSL_LOCKS_EXCLUDED(mu_);
  void OnReplies(Stream* stream, const absl::Cord& frame)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnStreamEnded(Stream* stream, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The calls to put into the next frame. Empty if there are none.
  absl::Cord NextFrame() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLost(const absl::Status& status, Failures* failures)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailUnsent(const absl::Status& status, Failures* failures)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Run(Failures failures);
  absl::Status DeathStatus(const v1::ActorInfo& info) const;

  const ActorIdentity actor_;
  const std::string token_;
  const std::string head_address_;
  const Lookup lookup_;

  mutable absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  absl::Status death_ ABSL_GUARDED_BY(mu_);
  v1::ActorInfo info_ ABSL_GUARDED_BY(mu_);  // As last heard from the head.
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
  uint64_t next_call_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::deque<PendingCall> unsent_ ABSL_GUARDED_BY(mu_);
  uint64_t unsent_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::shared_ptr<CallState>> sent_ ABSL_GUARDED_BY(mu_);
  // Were on their way when a stream broke; their fate is being asked for.
  std::vector<std::shared_ptr<CallState>> lost_ ABSL_GUARDED_BY(mu_);
  // How the last stream ended.
  absl::Status break_ ABSL_GUARDED_BY(mu_);
  // Streams that broke since the last reply, without news from the head.
  int breaks_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_ACTOR_CONNECTION_H_
