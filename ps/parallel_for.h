// Runs independent pieces of work on all cores.

#ifndef MINIRAY_PS_PARALLEL_FOR_H_
#define MINIRAY_PS_PARALLEL_FOR_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace miniray::ps {

// Calls work(0) ... work(count - 1), each once, from several threads at a time,
// and returns when all have returned. `work` must not throw. While weights are
// aggregated the workers wait, so the machine's cores are free, whatever number
// of CPUs the server's actor asked for.
void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> work);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_PARALLEL_FOR_H_
