#include "ps/pull_weights.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "ps/await_calls.h"
#include "ps/worker_methods.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

constexpr absl::Duration kReminderPeriod = absl::Seconds(30);

constexpr char kLendWeights[] = "LendWeights";
constexpr char kLendGradients[] = "LendGradients";
constexpr char kSendWeights[] = "SendWeights";
constexpr char kReceiveWeights[] = "ReceiveWeights";
constexpr char kNumSamples[] = "NumSamples";
constexpr char kBufferNames[] = "BufferNames";

// What to call for a worker's weights or gradients.
std::string PullMethod(const AnyActorHandle& worker, bool gradients) {
  if (gradients) {
    return HasMethod(worker, kLendGradients) ? kLendGradients : "GetGradients";
  }
  return HasMethod(worker, kLendWeights) ? kLendWeights : "GetWeights";
}

class Pull {
 public:
  explicit Pull(const PullRequest& request)
      : request_(request),
        answers_(request.workers.size()),
        calls_(request.workers.size()) {
    if (request.view != nullptr) places_ = request.view->places();
  }

  absl::StatusOr<PulledWeights> Run() {
    Ask();
    const absl::Status awaited = AwaitCalls(
        calls_, request_.workers, "pull of weights", kReminderPeriod,
        [this](size_t i) { return Take(i); }, request_.deadline, request_.stop);
    if (absl::IsCancelled(awaited)) {
      for (const Answer& answer : answers_) {
        Cancel(answer.weights_call);
        Cancel(answer.message_call);
      }
    }
    MR_RETURN_IF_ERROR(awaited);
    MR_RETURN_IF_ERROR(LeaveOutLate());
    MR_RETURN_IF_ERROR(CheckLayouts());
    return Result();
  }

 private:
  struct Answer {
    // One of them: without a view, with one.
    ObjectRef<ReadOnly<NamedTensors>> weights_call;
    ObjectRef<ReadOnly<WeightMessage>> message_call;
    std::optional<ObjectRef<double>> samples_call;
    bool came = false;
    absl::Status status;  // Of one that is left out.
    bool refused = false;
    bool holds_view = false;
    Contribution contribution;
  };

  std::string Name(size_t i) const {
    return WorkerName(i, request_.workers[i]);
  }

  // Methods of one worker run in the order of the calls: what is asked for
  // first is there when the weights are.
  void Ask() {
    const AnyActorHandle& first = request_.workers.front();
    if (request_.wants_buffers && HasMethod(first, kBufferNames)) {
      buffers_call_ =
          first.CallByName<std::vector<std::string>>(std::string(kBufferNames));
    }
    for (size_t i = 0; i < answers_.size(); ++i) {
      const AnyActorHandle& worker = request_.workers[i];
      Answer& answer = answers_[i];
      if (request_.wants_samples && HasMethod(worker, kNumSamples)) {
        answer.samples_call =
            worker.CallByName<double>(std::string(kNumSamples));
      }
      if (request_.view != nullptr) {
        answer.message_call = worker.CallByName<ReadOnly<WeightMessage>>(
            kSendWeights, request_.view->RequestTo(static_cast<int64_t>(i)));
        calls_[i] = answer.message_call.state();
      } else {
        answer.weights_call = worker.CallByName<ReadOnly<NamedTensors>>(
            PullMethod(worker, request_.gradients != nullptr));
        calls_[i] = answer.weights_call.state();
      }
    }
  }

  // The call goes with the bytes that came. Weights that their worker keeps are
  // fetched now, and that ends with the deadline, too.
  absl::StatusOr<NamedTensors> WeightsOf(Answer& answer) {
    const absl::Duration time = request_.deadline - absl::Now();
    if (request_.view == nullptr) {
      MR_ASSIGN_OR_RETURN(ReadOnly<NamedTensors> weights,
                          std::exchange(answer.weights_call, {}).Get(time));
      bytes_ += TotalBytes(weights.value);
      return std::move(weights.value);
    }
    MR_ASSIGN_OR_RETURN(const ReadOnly<WeightMessage> message,
                        std::exchange(answer.message_call, {}).Get(time));
    MR_ASSIGN_OR_RETURN(
        NamedTensors weights,
        request_.view->ContributionIn(message.value, *request_.weights,
                                      &answer.holds_view));
    const int64_t bytes = TotalBytes(message.value.tensors);
    bytes_ += bytes;
    bytes_saved_ += TotalBytes(weights) - bytes;
    if (places_.empty()) places_ = message.value.parts;
    if (places_ != message.value.parts) {
      return absl::InvalidArgumentError(
          "its tensors have other shapes than those of the server or the "
          "other workers");
    }
    return weights;
  }

  // A worker that fails ends the pull, or is left out.
  absl::Status Fail(size_t i, absl::Status status) {
    answers_[i].status = Annotate(status, Name(i));
    if (request_.min_workers == 0) return answers_[i].status;
    ++num_failed_;
    const auto left = static_cast<int64_t>(answers_.size()) - num_failed_;
    if (left >= request_.min_workers) return absl::OkStatus();
    return TooFewLeft(answers_[i].status, left);
  }

  // The error, and that without its worker too few are left.
  absl::Status TooFewLeft(const absl::Status& error, int64_t left) const {
    return absl::Status(
        error.code(),
        absl::StrCat(error.message(), "; ", left, " of ", answers_.size(),
                     " workers are left, and min_workers is ",
                     request_.min_workers));
  }

  absl::Status Take(size_t i) {
    Answer& answer = answers_[i];
    answer.came = true;
    const std::optional<int32_t> process = calls_[i]->process();
    absl::StatusOr<NamedTensors> weights = WeightsOf(answer);
    calls_[i] = nullptr;
    if (!weights.ok()) return Fail(i, weights.status());
    if (request_.taken != nullptr) {
      const absl::Status taken = request_.taken->Check(
          request_.workers[i], process, request_.min_workers == 0);
      if (!taken.ok()) return Fail(i, taken);
    }
    answer.contribution.worker_id = static_cast<int>(i);
    answer.contribution.tensors = *std::move(weights);
    if (answer.samples_call.has_value()) {
      const absl::StatusOr<double> samples = answer.samples_call->Get();
      if (!samples.ok()) return Fail(i, samples.status());
      answer.contribution.num_samples = *samples;
    }
    MR_RETURN_IF_ERROR(CheckForm(answer.contribution.tensors, Name(i)));
    if (request_.gradients != nullptr) {
      MR_RETURN_IF_ERROR(
          request_.gradients(Name(i), &answer.contribution.tensors));
    }
    if (!request_.check_finite) return absl::OkStatus();
    const absl::Status finite =
        CheckFinite(answer.contribution.tensors, Name(i));
    if (finite.ok() || !request_.drop_non_finite) return finite;
    answer.refused = true;
    answer.status = finite;
    return absl::OkStatus();
  }

  absl::Status LeaveOutLate() {
    std::vector<std::string> late;
    for (size_t i = 0; i < answers_.size(); ++i) {
      if (answers_[i].came) continue;
      Cancel(answers_[i].weights_call);
      Cancel(answers_[i].message_call);
      answers_[i].status = absl::DeadlineExceededError(
          absl::StrCat(Name(i), " has not given its weights in time"));
      late.push_back(Name(i));
    }
    if (late.empty()) return absl::OkStatus();
    const auto came =
        static_cast<int64_t>(answers_.size() - late.size()) - num_failed_;
    const int64_t needed = request_.min_workers == 0
                               ? static_cast<int64_t>(answers_.size())
                               : request_.min_workers;
    if (came >= needed) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(
        "weights of ", came, " workers came within sync_timeout_seconds, and ",
        needed, " are needed; not those of ", absl::StrJoin(late, ", ")));
  }

  absl::Status CheckLayouts() const {
    std::optional<ModelLayout> first;
    std::string first_name = "the parameter server";
    if (request_.layout != nullptr) first = *request_.layout;
    for (size_t i = 0; i < answers_.size(); ++i) {
      const Answer& answer = answers_[i];
      if (!answer.status.ok() && !answer.refused) continue;
      if (first.has_value()) {
        MR_RETURN_IF_ERROR(CheckLayout(answer.contribution.tensors, *first,
                                       Name(i), first_name));
      } else {
        first = ModelLayout::Of(answer.contribution.tensors);
        first_name = absl::StrCat("worker ", i);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PulledWeights> Result() {
    PulledWeights result{.bytes = bytes_,
                         .bytes_saved = bytes_saved_,
                         .places = std::move(places_)};
    for (size_t i = 0; i < answers_.size(); ++i) {
      Answer& answer = answers_[i];
      result.holds_view.push_back(answer.holds_view);
      if (answer.status.ok()) {
        result.contributions.push_back(std::move(answer.contribution));
      } else {
        result.left_out.push_back({.worker = i,
                                   .status = std::move(answer.status),
                                   .refused = answer.refused});
      }
    }
    if (result.contributions.empty()) {
      return Annotate(result.left_out.front().status,
                      "no worker has finite weights");
    }
    // Those that are not finite do not count, either.
    const auto left = static_cast<int64_t>(result.contributions.size());
    if (left < request_.min_workers) {
      return TooFewLeft(result.left_out.front().status, left);
    }
    if (buffers_call_.state() != nullptr && answers_.front().came) {
      absl::StatusOr<std::vector<std::string>> names = buffers_call_.Get();
      if (names.ok()) {
        result.buffer_names = *std::move(names);
      } else if (request_.min_workers == 0) {
        return Annotate(names.status(), Name(0));
      }
    }
    return result;
  }

  const PullRequest& request_;
  std::vector<Answer> answers_;
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls_;
  ObjectRef<std::vector<std::string>> buffers_call_;
  int64_t num_failed_ = 0;
  int64_t bytes_ = 0;
  int64_t bytes_saved_ = 0;
  std::vector<TensorPart> places_;
};

}  // namespace

absl::Status CheckExchange(const std::vector<AnyActorHandle>& workers,
                           absl::string_view why) {
  for (size_t i = 0; i < workers.size(); ++i) {
    for (const char* method : {kSendWeights, kReceiveWeights}) {
      if (HasMethod(workers[i], method)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          WorkerName(i, workers[i]), " has no method ", method,
          ": give its class SendWeights and ReceiveWeights, three lines each "
          "(ps/weight_exchange.h), and list them in its MINIRAY_ACTOR, for ",
          why));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSamples(const std::vector<AnyActorHandle>& workers,
                          absl::string_view strategy) {
  for (size_t i = 0; i < workers.size(); ++i) {
    if (HasMethod(workers[i], kNumSamples)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "strategy ", strategy, " counts each worker by its samples, and ",
        WorkerName(i, workers[i]),
        " tells none: give its class `int64_t NumSamples()` and list it in its "
        "MINIRAY_ACTOR, or set weights with SetWorkerWeight; strategy average "
        "counts all alike"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PulledWeights> PullWeightsOf(const PullRequest& request) {
  return Pull(request).Run();
}

}  // namespace miniray::ps
