// Waits for one call to each of several workers.

#ifndef MINIRAY_PS_AWAIT_CALLS_H_
#define MINIRAY_PS_AWAIT_CALLS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

// "worker 2 (GanWorker 'w2')": how errors name a worker.
std::string WorkerName(size_t index, const AnyActorHandle& worker);

// The names of workers by Contribution::worker_id. `workers` must live as long.
inline auto NamesOf(const std::vector<AnyActorHandle>& workers) {
  return [&workers](int worker) {
    const auto index = static_cast<size_t>(worker);
    return WorkerName(index, workers[index]);
  };
}

// Gives the index of each call to `on_done` once the call is done, in the order
// in which they finish; stops at the first error of on_done and returns it. The
// calls go on then. on_done may set calls[i] to null, to free its result.
//
// deadline: calls that are not done by then are left alone, and on_done does
//   not see them.
// calls, workers: as many of each, calls[i] being one to workers[i].
// doing: for the log, which tells every `reminder_period` who is waited for.
// stop: if not null, the wait ends with CANCELLED once it is done.
absl::Status AwaitCalls(
    const std::vector<std::shared_ptr<miniray::internal::CallState>>& calls,
    const std::vector<AnyActorHandle>& workers, absl::string_view doing,
    absl::Duration reminder_period,
    absl::FunctionRef<absl::Status(size_t)> on_done,
    absl::Time deadline = absl::InfiniteFuture(),
    const std::shared_ptr<miniray::internal::CallState>& stop = nullptr);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_AWAIT_CALLS_H_
