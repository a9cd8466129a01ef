#include "ps/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace miniray::ps {
namespace {

// Memory's bandwidth is used up by then.
constexpr int64_t kMaxThreads = 8;

}  // namespace

void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> work) {
  std::atomic<int64_t> next = 0;
  auto run = [&] {
    for (int64_t i = next++; i < count; i = next++) work(i);
  };
  const int64_t wanted =
      std::min({count, kMaxThreads,
                static_cast<int64_t>(std::thread::hardware_concurrency())});
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < wanted; ++i) {
    try {
      threads.emplace_back(run);
    } catch (const std::system_error&) {
      break;  // No more threads: the others do it.
    }
  }
  run();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace miniray::ps
