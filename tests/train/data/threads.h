// How many threads this process has.

#ifndef MINIRAY_TESTS_TRAIN_DATA_THREADS_H_
#define MINIRAY_TESTS_TRAIN_DATA_THREADS_H_

#include <filesystem>
#include <iterator>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace miniray::train {

inline int CountThreads() {
  return static_cast<int>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                    std::filesystem::directory_iterator()));
}

// A thread that was joined may be listed for a moment more.
inline bool ThreadsComeDownTo(int count) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (CountThreads() > count) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_DATA_THREADS_H_
