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
#include "ps/push_error.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

constexpr absl::Duration kReminderPeriod = absl::Seconds(30);

// Weights as they are sent to workers.
struct Outgoing {
  EncodedWeights encoded;
  int64_t bytes = 0;  // Of tensors.
};

}  // namespace

std::string ParameterServer::PushMethod() const {
  return view_.has_value() ? "ReceiveWeights" : "SetWeights";
}

absl::StatusOr<EncodedWeights> ParameterServer::EncodeWhole() const {
  return view_.has_value() ? EncodedWeights::Of(view_->full())
                           : EncodedWeights::Of(weights_);
}

void ParameterServer::SendWhenBack(const AnyActorHandle& worker,
                                   const EncodedWeights& weights) {
  ObjectRef<void>& call = late_pushes_[worker.actor_id()];
  Cancel(call);
  call = worker.CallByNameWith<void>(CallOptions{.max_retries = -1},
                                     PushMethod(), weights);
  taken_.NoteSent(worker, call.state());
}

absl::Status ParameterServer::Push(const std::vector<AnyActorHandle>& workers,
                                   const std::vector<LeftOut>& left_out,
                                   const std::vector<bool>& holds_view,
                                   std::vector<BehindWorker>* behind) {
  std::vector<BehindWorker> ignored;
  if (behind == nullptr) behind = &ignored;
  if (gradients_ != nullptr) FollowGradients();
  const absl::Time start = absl::Now();
  // For workers that hold nothing, and for those that hold the view.
  std::optional<Outgoing> outgoing[2];
  MR_ASSIGN_OR_RETURN(EncodedWeights whole, EncodeWhole());
  outgoing[false] = {
      std::move(whole),
      TotalBytes(view_.has_value() ? view_->tensors() : weights_)};
  if (view_.has_value() && view_->difference().has_value() &&
      std::count(holds_view.begin(), holds_view.end(), true) > 0) {
    const WeightMessage& difference = *view_->difference();
    MR_ASSIGN_OR_RETURN(EncodedWeights encoded, EncodedWeights::Of(difference));
    outgoing[true] = {std::move(encoded), TotalBytes(difference.tensors)};
  }
  const std::string method = PushMethod();
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
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!awaited[i]) {
      SendWhenBack(workers[i], outgoing[false]->encoded);
      continue;
    }
    Cancel(late_pushes_[workers[i].actor_id()]);
    late_pushes_.erase(workers[i].actor_id());
    refs[i] = workers[i].CallByName<void>(method, outgoing_to(i).encoded);
    calls[i] = refs[i].state();
    taken_.NoteSent(workers[i], calls[i]);
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
  stats_.seconds_push += absl::ToDoubleSeconds(absl::Now() - start);
  absl::Status status =
      Judge(workers, awaited, pushed, std::move(refs), behind);
  status.Update(SendAgain(workers, *behind));
  return status;
}

absl::Status ParameterServer::Judge(const std::vector<AnyActorHandle>& workers,
                                    const std::vector<bool>& awaited,
                                    const std::vector<absl::Status>& pushed,
                                    std::vector<ObjectRef<void>> calls,
                                    std::vector<BehindWorker>* behind) {
  absl::Status first_error;
  for (size_t i = 0; i < workers.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (!awaited[i]) {
      behind->push_back({.worker = index});
      continue;
    }
    if (pushed[i].ok()) continue;
    const absl::Status error = Annotate(pushed[i], WorkerName(i, workers[i]));
    // It may have taken them since.
    const bool late = absl::IsDeadlineExceeded(pushed[i]) &&
                      (!calls[i].ready() || calls[i].Get().ok());
    behind->push_back(
        {.worker = index, .why = Outcome::Of(error), .late = late});
    first_error.Update(error);
    ++stats_.pushes_lost;
    if (options_.min_workers == 0) continue;
    Warn(error);
    if (late) late_pushes_[workers[i].actor_id()] = std::move(calls[i]);
  }
  const auto good = static_cast<int64_t>(workers.size() - behind->size());
  if (first_error.ok() ||
      (options_.min_workers > 0 && good >= options_.min_workers)) {
    return absl::OkStatus();
  }
  // In front of shards it is known what all of them say.
  return IsShard() ? first_error
                   : PushError(first_error, stats_.version, workers, *behind);
}

absl::Status ParameterServer::SendAgain(
    const std::vector<AnyActorHandle>& workers,
    const std::vector<BehindWorker>& behind) {
  if (options_.min_workers == 0 || IsShard()) return absl::OkStatus();
  std::vector<AnyActorHandle> failed;
  for (const BehindWorker& worker : behind) {
    if (worker.late || worker.why.status().ok()) continue;
    failed.push_back(workers[static_cast<size_t>(worker.worker)]);
  }
  return SendPart(failed);
}

absl::Status ParameterServer::SendPart(
    const std::vector<AnyActorHandle>& workers) {
  if (workers.empty()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const EncodedWeights whole, EncodeWhole());
  for (const AnyActorHandle& worker : workers) SendWhenBack(worker, whole);
  return absl::OkStatus();
}

}  // namespace miniray::ps
