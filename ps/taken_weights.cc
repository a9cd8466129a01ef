#include "ps/taken_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ps/worker_methods.h"

namespace miniray::ps {

void TakenWeights::NoteSent(
    const AnyActorHandle& worker,
    std::shared_ptr<miniray::internal::CallState> call) {
  sent_[worker.actor_id()] = std::move(call);
}

absl::Status TakenWeights::Check(const AnyActorHandle& worker,
                                 std::optional<int32_t> process,
                                 bool all_needed) const {
  const auto sent = sent_.find(worker.actor_id());
  // Calls to a worker are answered in their order, so this one was before the
  // contribution came; of a class that runs SetWeights in a concurrency group
  // of its own nothing is known.
  if (sent == sent_.end() || !sent->second->done()) return absl::OkStatus();
  const absl::Status taken = sent->second->Wait(absl::ZeroDuration()).status();
  const std::optional<int32_t> taken_by = sent->second->process();
  // Without an answer, that process died with the call.
  const bool restarted =
      taken_by.has_value() ? taken_by != process : absl::IsUnavailable(taken);
  if (restarted && BeginsAnew(worker)) {
    return absl::FailedPreconditionError(
        "has restarted since it was sent weights, and has those that it began "
        "with; send it the server's with PushToWorkers, or, where the server "
        "has none, give all the same with StartFromWorkers; or let min_workers "
        "allow a synchronisation to go on without it, which sends it the "
        "server's by itself");
  }
  if (taken.ok() || all_needed) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("has not taken the weights that it was sent last, and is "
                   "sent them again: ",
                   taken.message()));
}

}  // namespace miniray::ps
