#include "runtime/actor/idle_memory.h"

#include <malloc.h>
#include <time.h>

#include <cstddef>
#include <utility>

#include "runtime/base/background.h"

namespace miniray {
namespace internal {
namespace {

// Internal. As for shared memory and warm memory.
constexpr absl::Duration kPeriod = absl::Seconds(10);
// Of one CPU.
constexpr double kBusyShare = 0.02;
// Less is not worth the page faults of the next call.
constexpr size_t kWorthIt = size_t{64} << 20;

void LookAgain(const std::shared_ptr<IdleMemory>& memory) {
  RunInBackground(
      [memory] {
        memory->Look(kPeriod);
        LookAgain(memory);
      },
      kPeriod);
}

}  // namespace

absl::Duration IdleMemory::CpuTime() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

void IdleMemory::GiveBack() {
#ifdef __GLIBC__
  if (mallinfo2().fordblks >= kWorthIt) malloc_trim(0);
#endif
}

IdleMemory::IdleMemory(std::function<absl::Duration()> cpu_time,
                       std::function<void()> give_back)
    : cpu_time_(std::move(cpu_time)),
      give_back_(std::move(give_back)),
      used_(cpu_time_()) {}

void IdleMemory::Watch() { LookAgain(std::make_shared<IdleMemory>()); }

void IdleMemory::Look(absl::Duration period) {
  const absl::Duration used = cpu_time_();
  const bool was_idle =
      std::exchange(idle_, used - used_ < kBusyShare * period);
  used_ = used;
  if (idle_ && !was_idle) give_back_();
}

}  // namespace internal
}  // namespace miniray
