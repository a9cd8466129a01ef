#include "runtime/actor/compute_threads.h"

#include <dlfcn.h>

#include <atomic>

namespace miniray {
namespace internal {
namespace {

std::atomic<int> compute_threads = 0;

// Calls `void symbol(int)` if the process has it.
void CallIfLoaded(const char* symbol, int argument) {
  // NOLINTNEXTLINE: what dlsym returns is a function.
  auto* const function =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, symbol));
  if (function != nullptr) function(argument);
}

}  // namespace

void SetComputeThreads(int threads) {
  if (threads < 1) return;
  compute_threads = threads;
  EnterComputeThread();
  CallIfLoaded("openblas_set_num_threads", threads);
  CallIfLoaded("_ZN2at15set_num_threadsEi", threads);  // at::set_num_threads
}

void EnterComputeThread() {
  if (const int threads = compute_threads; threads > 0) {
    CallIfLoaded("omp_set_num_threads", threads);
  }
}

}  // namespace internal
}  // namespace miniray
