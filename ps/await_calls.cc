#include "ps/await_calls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

std::string WorkerName(size_t index, const AnyActorHandle& worker) {
  return absl::StrCat("worker ", index, " (", worker.ToString(), ")");
}

absl::Status AwaitCalls(
    const std::vector<std::shared_ptr<miniray::internal::CallState>>& calls,
    const std::vector<AnyActorHandle>& workers, absl::string_view doing,
    absl::Duration reminder_period,
    absl::FunctionRef<absl::Status(size_t)> on_done, absl::Time deadline,
    const std::shared_ptr<miniray::internal::CallState>& stop) {
  std::vector<bool> handled(calls.size());
  size_t num_handled = 0;
  while (num_handled < calls.size()) {
    const absl::Duration left = deadline - absl::Now();
    std::vector<std::shared_ptr<miniray::internal::CallState>> watched = calls;
    if (stop != nullptr) watched.push_back(stop);
    const std::vector<size_t> ready = miniray::internal::WaitForCalls(
        watched, num_handled + 1,
        std::clamp(left, absl::ZeroDuration(), reminder_period));
    if (stop != nullptr && stop->done()) {
      return absl::CancelledError(absl::StrCat(doing, ": given up"));
    }
    if (ready.size() == num_handled) {
      if (left <= reminder_period) return absl::OkStatus();
      std::vector<std::string> missing;
      for (size_t i = 0; i < calls.size(); ++i) {
        if (!handled[i]) missing.push_back(WorkerName(i, workers[i]));
      }
      LOG(WARNING) << doing << ": still waiting for "
                   << absl::StrJoin(missing, ", ");
    }
    for (const size_t i : ready) {
      if (handled[i]) continue;
      handled[i] = true;
      ++num_handled;
      MR_RETURN_IF_ERROR(on_done(i));
    }
  }
  return absl::OkStatus();
}

}  // namespace miniray::ps
