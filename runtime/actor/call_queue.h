// The calls that wait for one concurrency group of an actor, of all callers, in
// the order of their arrival.

#ifndef MINIRAY_RUNTIME_ACTOR_CALL_QUEUE_H_
#define MINIRAY_RUNTIME_ACTOR_CALL_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/wire/call_messages.h"

namespace miniray {
namespace internal {

class CallQueue;
class CallSession;

// A call on its way through the actor. Owned by its queue, then by the thread
// that runs it; its session refers to it until the reply.
struct QueuedCall {
  enum class State { kQueued, kRunning, kCancelled };

  std::shared_ptr<CallSession> session;
  CallQueue* queue = nullptr;
  CallMessage message;
  uint64_t bytes = 0;
  int64_t arrival_unix_us = 0;
  // From then on its caller does not wait for it.
  absl::Time deadline = absl::InfiniteFuture();
  // kQueued goes to one of the others, once: who makes it kRunning has the
  // call. A cancelled one may be gone at once, with its queue or its thread.
  std::atomic<State> state = State::kQueued;
  // Of a running call: it is wanted no more.
  std::atomic<bool> cancelled = false;

  bool expired() const {
    return deadline != absl::InfiniteFuture() && deadline <= absl::Now();
  }

  bool Take(State next) {
    State expected = State::kQueued;
    return state.compare_exchange_strong(expected, next);
  }
};

// Thread-safe.
class CallQueue {
 public:
  using Calls = std::vector<std::unique_ptr<QueuedCall>>;

  // Returns the calls if the queue is closed.
  Calls Push(Calls calls) ABSL_LOCKS_EXCLUDED(mu_);

  // The next call that may run; blocks until there is one, `deadline` has
  // passed or the queue is closed: then null. Calls of stalled sessions wait
  // aside until Resume.
  std::unique_ptr<QueuedCall> Pop(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // A call in here, of so many bytes, was cancelled. It goes with the next Pop
  // that comes to it, or when such calls are many.
  void OnCancelled(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // The session is no longer stalled: its calls come first, in their order.
  void Resume(const CallSession* session) ABSL_LOCKS_EXCLUDED(mu_);

  // Closes the queue; returns the calls that will not run.
  Calls Close() ABSL_LOCKS_EXCLUDED(mu_);

  bool closed() const ABSL_LOCKS_EXCLUDED(mu_);
  // With cancelled ones.
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_);
  // Without; looks at each.
  size_t waiting() const ABSL_LOCKS_EXCLUDED(mu_);
  // Threads that wait in Pop.
  int idle() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int idle_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::unique_ptr<QueuedCall>> calls_ ABSL_GUARDED_BY(mu_);
  // Since they were last taken out, and at most.
  size_t cancelled_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t cancelled_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<const CallSession*, std::deque<std::unique_ptr<QueuedCall>>> parked_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_CALL_QUEUE_H_
