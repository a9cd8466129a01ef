// The finished calls of an actor process, on their way to the timeline.

#ifndef MINIRAY_RUNTIME_ACTOR_CALL_RECORDER_H_
#define MINIRAY_RUNTIME_ACTOR_CALL_RECORDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/worker.pb.h"
#include "runtime/actor/actor_server.h"

namespace miniray {
namespace internal {

// Keeps what there is to tell for a second, then sends it. Where there are more
// than kMaxPerSecond calls, it keeps one in so many and counts the others.
// Thread-safe.
class CallRecorder : public std::enable_shared_from_this<CallRecorder> {
 public:
  // Returns whether it was sent. `wait`: it blocks until it is; else it is not
  // sent where that would block.
  using Send = std::function<bool(const v1::ActorEvent&, bool wait)>;
  static constexpr int64_t kMaxPerSecond = 1000;

  explicit CallRecorder(Send send) : send_(std::move(send)) {}

  // What ActorHooks::on_call is to be for this actor. It costs a lock that
  // hardly anybody else takes; only a kept record costs more.
  std::function<void(const FinishedCall&)> HookFor(const v1::HostActor& host);

  // Sends what there is; before the end of an actor, or of the process.
  void Flush();

 private:
  struct Actor {
    std::string actor_id;
    std::string class_name;  // Short.
    std::string name;
    std::string job_id;
  };

  void Add(const Actor& actor, const FinishedCall& call);
  // Sends what there is if that is possible now; what is not sent counts as
  // dropped.
  void TrySend();
  // Whether to keep this one.
  bool Count(int64_t now_unix_us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Send send_;

  absl::Mutex mu_;
  v1::ActorEvent event_ ABSL_GUARDED_BY(mu_);  // What there is to tell.
  bool scheduled_ ABSL_GUARDED_BY(mu_) = false;
  // The present second, and what came in it.
  int64_t second_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t kept_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t stride_ ABSL_GUARDED_BY(mu_) = 1;  // One in so many is kept.
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_CALL_RECORDER_H_
