// The calls of a chaos run, and the books that are kept of them.
//
// Each actor counts the calls that it ran and keeps the count with SaveState.
// Several threads call all actors all the time. Of each call it is known when
// it was made and what became of it, and so what each count may be.

#ifndef MINIRAY_TOOLS_HAVOC_WORKLOAD_H_
#define MINIRAY_TOOLS_HAVOC_WORKLOAD_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"

namespace miniray::havoc {

// In an actor's environment: it forgets its state at a restart.
inline constexpr char kForgetVariable[] = "MINIRAY_CHAOS_FORGET";

// Count, pid, calls that came again.
using CountReply = std::tuple<int64_t, int64_t, int64_t>;

class CallCounter {
 public:
  // Call number `sequence` of caller `caller`; both are told by the caller. A
  // call that ran before counts once.
  CountReply Add(int64_t caller, int64_t sequence);
  CountReply Get() const;

  // Count, calls that came again, and the last call of each caller.
  using State = std::tuple<int64_t, int64_t, std::map<int64_t, int64_t>>;
  State SaveState() const { return {count_, again_, last_}; }
  void RestoreState(const State& state);

 private:
  int64_t count_ = 0;
  int64_t again_ = 0;
  std::map<int64_t, int64_t> last_;
};
MINIRAY_ACTOR(CallCounter, Constructor<>, &CallCounter::Add, &CallCounter::Get);

// Thread-safe.
class Workload {
 public:
  struct Options {
    bool forget = false;  // Breaks the actors; see kForgetVariable.
    int actors = 8;       // Every other one has calls with max_retries -1.
    int threads = 3;
    // Calls of one thread to one actor without a reply.
    int window = 4;
    // Between two calls of one thread to one actor.
    absl::Duration pause = absl::Milliseconds(10);
    std::function<void(const std::string&)> on_failure;  // of a call
  };

  Workload(Cluster cluster, Options options);
  ~Workload();

  // Creates the actors and waits until all answer.
  absl::Status CreateActors();
  void StartCalls();
  // Each thread goes on until each actor has answered a call that it made from
  // now on, so that whatever an actor has lost is heard of; then no call is
  // made any more. Waits until all have an outcome, and runs `watch` meanwhile.
  // Errors: INTERNAL, some have none, or some actor does not answer. Those of
  // `watch`.
  absl::Status StopCalls(absl::Duration timeout,
                         const std::function<absl::Status()>& watch);

  // As far as the replies told; 0: not known.
  pid_t ActorPid(int actor) const { return actors_[actor]->pid; }

  // Asks every actor for its count, until it answers, and runs `watch`
  // meanwhile. Errors: INTERNAL with everything that is wrong in the books.
  // Those of `watch`.
  absl::Status CheckCounts(absl::Duration timeout,
                           const std::function<absl::Status()>& watch);

  // "12345 calls: 12000 OK, 345 UNAVAILABLE; ..."
  std::string Summary() const;

 private:
  struct Actor {
    ActorHandle<CallCounter> handle;
    bool retries = false;
    std::atomic<pid_t> pid = 0;
    std::atomic<int64_t> made = 0;
    std::atomic<int64_t> acknowledged = 0;
    std::atomic<int64_t> failed = 0;
    std::atomic<int64_t> completions = 0;  // As often as outcomes were told.
    std::atomic<int> heard = 0;  // By how many threads, since StopCalls.
  };
  struct Call;

  void CallerLoop(int caller);
  // Books an outcome; whether it is an answer.
  bool Settle(int caller, const Call& call, int64_t* last_count);
  void Complain(const std::string& what);

  const Options options_;
  const Cluster cluster_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> abandoned_ = false;  // Nobody waits for outcomes any more.
  std::atomic<int> running_ = 0;
  std::vector<std::thread> threads_;
  mutable absl::Mutex mu_;
  std::map<std::string, int64_t> outcomes_ ABSL_GUARDED_BY(mu_);
  absl::Duration longest_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> complaints_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray::havoc

#endif  // MINIRAY_TOOLS_HAVOC_WORKLOAD_H_
