// Why a process was killed that nobody here killed: where memory runs out
// faster than MemoryMonitor looks, the kernel's out-of-memory killer ends a
// process. It tells how many it has ended, and only in its log, which not
// everybody may read, whom.

#ifndef MINIRAY_RUNTIME_WORKER_OOM_KILLS_H_
#define MINIRAY_RUNTIME_WORKER_OOM_KILLS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace miniray {

// Processes that the kernel has ended for memory since it started, on the whole
// machine: of other containers, too, and those that were at the limit of their
// control group. Errors: those of the system; NOT_FOUND, it does not count them
// (before Linux 4.13).
absl::StatusOr<int64_t> ReadOomKills();

// Thread-safe.
class OomKills {
 public:
  // For so long after it was noticed, a kill may be what ended a process.
  static constexpr absl::Duration kMemory = absl::Seconds(5);

  explicit OomKills(
      std::function<absl::StatusOr<int64_t>()> read = &ReadOomKills,
      std::function<absl::Time()> now = &absl::Now);

  // Notices what kills there were since the last time. To be called every few
  // seconds: what is counted over a longer time is forgotten, since nobody
  // knows when it was.
  void Look();

  // What to tell behind the signal of a process that has just died, as in
  // "killed by signal 9 (SIGKILL)": "; in those seconds the kernel ended a
  // process of this machine for memory, probably this one". Empty: it ended
  // otherwise, or the kernel has killed nobody of late. Each kill explains one
  // end, so ask only for ends that nothing else explains.
  std::string Explain(int wait_status);

  // Ends that were explained so.
  int64_t explained() const;

 private:
  void LookLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<absl::StatusOr<int64_t>()> read_;
  const std::function<absl::Time()> now_;
  mutable absl::Mutex mu_;
  int64_t explained_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t seen_ ABSL_GUARDED_BY(mu_) = -1;  // -1: not yet counted.
  absl::Time seen_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // When kills were noticed that have explained nothing.
  std::deque<absl::Time> unexplained_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_OOM_KILLS_H_
