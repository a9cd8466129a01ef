#include "ps/worker_restarts.h"

#include "absl/status/statusor.h"
#include "ps/worker_methods.h"

namespace miniray::ps {

void WorkerRestarts::NoteSent(const AnyActorHandle& worker,
                              const CallOptions& options) {
  if (!HasMethod(worker, kMethod)) return;
  ObjectRef<int64_t>& took = took_weights_[worker.actor_id()];
  Cancel(took);
  took = worker.CallByNameWith<int64_t>(options, kMethod);
}

absl::Status WorkerRestarts::Check(const AnyActorHandle& worker,
                                   int64_t num_restarts) const {
  const auto took = took_weights_.find(worker.actor_id());
  // Calls to a worker are answered in their order: what has no answer yet had
  // no chance of one.
  if (took == took_weights_.end() || !took->second.ready()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<int64_t> before = took->second.Get();
  // UNAVAILABLE: that process died soon after.
  if (before.ok() ? *before == num_restarts
                  : !absl::IsUnavailable(before.status())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "has restarted since it was sent weights, and has those that it began "
      "with; send it the server's with PushToWorkers, or let min_workers allow "
      "a synchronisation to go on without it, which does so by itself");
}

}  // namespace miniray::ps
