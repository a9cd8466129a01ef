// The methods of ParameterServer that bring its weights to the workers.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "ps/await_calls.h"
#include "ps/check_weights.h"
#include "ps/encoded_weights.h"
#include "ps/parameter_server.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

constexpr absl::Duration kReminderPeriod = absl::Seconds(30);

// Weights as they are sent to workers.
struct Outgoing {
  EncodedWeights encoded;
  int64_t bytes = 0;  // Of tensors.

  template <class T>
  static absl::StatusOr<Outgoing> Of(const T& message,
                                     const NamedTensors& tensors) {
    MR_ASSIGN_OR_RETURN(EncodedWeights encoded, EncodedWeights::Of(message));
    return Outgoing{std::move(encoded), TotalBytes(tensors)};
  }
};

}  // namespace

absl::Status ParameterServer::Push(const std::vector<AnyActorHandle>& workers,
                                   const std::vector<LeftOut>& left_out,
                                   const std::vector<bool>& holds_view) {
  if (gradients_ != nullptr) FollowGradients();
  const absl::Time start = absl::Now();
  // For workers that hold nothing, and for those that hold the view.
  std::optional<Outgoing> outgoing[2];
  if (view_.has_value()) {
    MR_ASSIGN_OR_RETURN(outgoing[false],
                        Outgoing::Of(view_->full(), view_->tensors()));
  } else {
    MR_ASSIGN_OR_RETURN(outgoing[false], Outgoing::Of(weights_, weights_));
  }
  if (view_.has_value() && view_->difference().has_value() &&
      std::count(holds_view.begin(), holds_view.end(), true) > 0) {
    const WeightMessage& difference = *view_->difference();
    MR_ASSIGN_OR_RETURN(outgoing[true],
                        Outgoing::Of(difference, difference.tensors));
  }
  const std::string method =
      view_.has_value() ? "ReceiveWeights" : "SetWeights";
  const auto outgoing_to = [&](size_t i) -> const Outgoing& {
    const bool holds = i < holds_view.size() && holds_view[i];
    return *outgoing[holds && outgoing[true].has_value()];
  };
  std::erase_if(late_pushes_,
                [](const auto& late) { return late.second.ready(); });
  std::vector<bool> awaited(workers.size(), true);
  for (const LeftOut& worker : left_out) {
    awaited[worker.worker] = worker.refused;
  }
  std::vector<ObjectRef<void>> refs(workers.size());
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls(
      workers.size());
  // Who comes back from where it was gets the weights then, and only the last.
  const auto send_when_back = [&](const AnyActorHandle& worker) {
    const CallOptions options = {.max_retries = -1};
    late_pushes_[worker.actor_id()] =
        worker.CallByNameWith<void>(options, method, outgoing[false]->encoded);
    restarts_.NoteSent(worker, options);
  };
  for (size_t i = 0; i < workers.size(); ++i) {
    Cancel(late_pushes_[workers[i].actor_id()]);
    if (!awaited[i]) {
      send_when_back(workers[i]);
      continue;
    }
    late_pushes_.erase(workers[i].actor_id());
    refs[i] = workers[i].CallByName<void>(method, outgoing_to(i).encoded);
    restarts_.NoteSent(workers[i]);
    calls[i] = refs[i].state();
  }
  const absl::Time deadline = Deadline();
  const int64_t uncompressed = TotalBytes(weights_);
  // All are waited for, so that a caller who goes on despite an error meets
  // workers that are done with the push.
  std::vector<absl::Status> pushed(
      workers.size(),
      absl::DeadlineExceededError("has not taken the new weights in time"));
  MR_RETURN_IF_ERROR(AwaitCalls(
      calls, workers, "push of weights", kReminderPeriod,
      [&](size_t i) {
        if (!awaited[i]) return absl::OkStatus();
        pushed[i] = refs[i].Get();
        if (!pushed[i].ok()) return absl::OkStatus();
        const int64_t bytes = outgoing_to(i).bytes;
        stats_.bytes_pushed += bytes;
        stats_.bytes_saved_push += uncompressed - bytes;
        return absl::OkStatus();
      },
      deadline));
  for (size_t i = 0; i < workers.size(); ++i) {
    const bool died = awaited[i] && absl::IsUnavailable(pushed[i]);
    if (died && options_.min_workers > 0) send_when_back(workers[i]);
  }
  stats_.seconds_push += absl::ToDoubleSeconds(absl::Now() - start);
  return Judge(workers, awaited, pushed, std::move(refs));
}

absl::Status ParameterServer::Judge(const std::vector<AnyActorHandle>& workers,
                                    const std::vector<bool>& awaited,
                                    const std::vector<absl::Status>& pushed,
                                    std::vector<ObjectRef<void>> calls) {
  absl::Status first_error;
  int64_t good = 0;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!awaited[i]) continue;
    if (pushed[i].ok()) {
      ++good;
      continue;
    }
    const absl::Status error = Annotate(pushed[i], WorkerName(i, workers[i]));
    first_error.Update(error);
    if (options_.min_workers == 0) continue;
    Warn(error);
    if (absl::IsDeadlineExceeded(pushed[i])) {
      late_pushes_[workers[i].actor_id()] = std::move(calls[i]);
    }
  }
  if (options_.min_workers > 0 && good >= options_.min_workers) {
    return absl::OkStatus();
  }
  return first_error;
}

}  // namespace miniray::ps
