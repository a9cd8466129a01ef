// How much memory a program and all that it started use.

#ifndef MINIRAY_TOOLS_BENCH_NODE_MEMORY_H_
#define MINIRAY_TOOLS_BENCH_NODE_MEMORY_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>

#include "absl/status/statusor.h"

namespace miniray::bench {

// Bytes of this process and its descendants, except those in `without` and
// their descendants: what is theirs alone, their part of what they share (Pss),
// and the files in memory that they hold, mapped or not. Shared memory that is
// no file counts where they hold no such file.
int64_t TreeMemory(const std::set<pid_t>& without);

// The most that TreeMemory returned while `work` ran; it is asked all the time.
absl::StatusOr<int64_t> PeakTreeMemory(
    const std::set<pid_t>& without, const std::function<absl::Status()>& work,
    std::atomic<int>* looks = nullptr);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_NODE_MEMORY_H_
