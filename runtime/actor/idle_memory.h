// Gives what malloc keeps back to the system once a process is idle.

#ifndef MINIRAY_RUNTIME_ACTOR_IDLE_MEMORY_H_
#define MINIRAY_RUNTIME_ACTOR_IDLE_MEMORY_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace miniray {
namespace internal {

// An actor's malloc keeps what a step has freed for the next one
// (actor_malloc.h). Where no next one comes, others on the node may need it.
// The process is idle if it used next to no CPU time for a while, whatever it
// might be used for: calls, constructors, threads of its own. To be used by one
// thread at a time.
class IdleMemory {
 public:
  // The CPU time that this process has used, of all threads.
  static absl::Duration CpuTime();
  // malloc_trim, if it is worth it: a millisecond or so, for which others wait
  // who take memory. The next step gets its pages anew.
  static void GiveBack();

  explicit IdleMemory(std::function<absl::Duration()> cpu_time = &CpuTime,
                      std::function<void()> give_back = &GiveBack);

  // Looks from now on, for as long as the process lives.
  static void Watch();

  // Has happened `period` after the last time: gives back, once, if the process
  // did nothing in between.
  void Look(absl::Duration period);

 private:
  const std::function<absl::Duration()> cpu_time_;
  const std::function<void()> give_back_;
  absl::Duration used_;
  bool idle_ = false;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_IDLE_MEMORY_H_
