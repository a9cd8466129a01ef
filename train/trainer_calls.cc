// The part of TrainerBase that calls workers and waits for them.

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/await_calls.h"
#include "runtime/base/status_macros.h"
#include "train/trainer_base.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

// For so long the cause of an error is waited for that may have one elsewhere.
constexpr absl::Duration kCauseGrace = absl::Seconds(2);

// What becomes of somebody who is waited for.
std::string WaitEnds(const FailureConfig& config) {
  return config.hang_timeout == absl::InfiniteDuration()
             ? "training waits without limit, since failure.hang_timeout is "
               "not set"
             : absl::StrCat("after ", absl::FormatDuration(config.hang_timeout),
                            " (failure.hang_timeout) that is a failure");
}

// To read: whole seconds, where there are any.
std::string HowLong(absl::Duration time) {
  return absl::FormatDuration(absl::Trunc(time, time < absl::Seconds(1)
                                                    ? absl::Milliseconds(1)
                                                    : absl::Seconds(1)));
}

}  // namespace

absl::StatusOr<std::vector<Metrics>> TrainerBase::RunWorkers(int epoch) {
  MarkTrained();
  std::vector<ObjectRef<Metrics>> refs(workers_.size());
  MR_RETURN_IF_ERROR(CallAndAwait("TrainEpoch", [&](int id) {
    refs[id] = workers_[id].CallByName<Metrics>("TrainEpoch", epoch);
    return refs[id].state();
  }));
  return GetAll(refs);
}

absl::StatusOr<EpochResult> TrainerBase::RunAndAverage(int epoch) {
  EpochResult result;
  MR_ASSIGN_OR_RETURN(result.per_worker, RunWorkers(epoch));
  MR_ASSIGN_OR_RETURN(result.metrics, AverageMetrics(result.per_worker));
  MetricsRange range = RangeOfMetrics(result.per_worker);
  result.min = std::move(range.min);
  result.max = std::move(range.max);
  return result;
}

absl::Status TrainerBase::CallAndAwait(absl::string_view method,
                                       const CallWorker& call) {
  std::vector<Call> calls;
  for (size_t id = 0; id < workers_.size(); ++id) {
    calls.push_back(call(static_cast<int>(id)));
  }
  return AwaitWorkers(std::move(calls), method, call);
}

absl::Status TrainerBase::AwaitWorkers(std::vector<Call> calls,
                                       absl::string_view method,
                                       const CallWorker& again) {
  const absl::Time start = absl::Now();
  double last = 0;  // Seconds after which the last so far was done.
  double sum = 0;
  int num_calls = 0;
  std::vector<bool> done(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    done[i] = calls[i] == nullptr;
    if (!done[i]) ++num_calls;
  }
  HangWatch watch(options_.failure.hang_timeout, options_.failure.warn_after,
                  WorkersHaveProgress(), calls.size());
  // Those that may have failed only because of one that has been healed.
  std::vector<bool> excused(calls.size(), false);
  while (true) {
    size_t failed = 0;
    const absl::Status error =
        AwaitUntilFailure(calls, method, &watch, &done, &failed, [&] {
          last = SecondsSince(start);
          sum += last;
        });
    if (error.ok()) break;
    MR_RETURN_IF_ERROR(CheckNotStopped());
    const bool can_call_again = heals_ && again != nullptr;
    if (can_call_again && excused[failed] && absl::IsUnavailable(error) &&
        !IsDead(failed)) {
      LOG(INFO) << "called again, since it had lost a worker that has been "
                   "made anew: "
                << error.message();
    } else {
      failed_worker_ = static_cast<int>(failed);
      failed_call_ = error;
      if (!can_call_again) return error;
      MR_RETURN_IF_ERROR(Heal(failed, error));
      excused.assign(calls.size(), true);
    }
    excused[failed] = false;
    calls[failed] = again(static_cast<int>(failed));
    watch.Restart();
  }
  if (num_calls == 0) return absl::OkStatus();
  timing_.compute += last;
  timing_.wait += last - sum / num_calls;
  return absl::OkStatus();
}

absl::Status TrainerBase::AwaitUntilFailure(const std::vector<Call>& calls,
                                            absl::string_view method,
                                            HangWatch* watch,
                                            std::vector<bool>* done,
                                            size_t* failed,
                                            absl::FunctionRef<void()> on_done) {
  const absl::Duration turn =
      MakesWorkers() ? std::min(watch->turn(), kSignalTurn) : watch->turn();
  while (true) {
    absl::Status error = ps::AwaitCalls(
        calls, workers_, method, /*reminder_period=*/absl::InfiniteDuration(),
        [&](size_t i) -> absl::Status {
          if ((*done)[i]) return absl::OkStatus();
          // The status names class, method and actor itself.
          absl::Status status = calls[i]->Wait(absl::ZeroDuration()).status();
          if (!status.ok()) {
            *failed = i;
            return Annotate(status, absl::StrCat("worker ", i));
          }
          (*done)[i] = true;
          on_done();
          return absl::OkStatus();
        },
        absl::Now() + turn);
    if (!error.ok()) {
      return FindCause(calls, method, *done, failed, std::move(error));
    }
    if (std::find(done->begin(), done->end(), false) == done->end()) {
      return absl::OkStatus();
    }
    MR_RETURN_IF_ERROR(CheckNotStopped());
    const std::optional<size_t> hung = watch->Look(workers_, *done);
    if (!hung.has_value()) {
      WarnOfStalled(method, watch->Stalled(*done));
      continue;
    }
    *failed = *hung;
    return absl::DeadlineExceededError(
        absl::StrCat(ps::WorkerName(*hung, workers_[*hung]), ": ", method,
                     WorkersHaveProgress() ? " has made no progress for "
                                           : " has not returned for ",
                     absl::FormatDuration(options_.failure.hang_timeout),
                     " (failure.hang_timeout): it is taken for hung"));
  }
}

void TrainerBase::WarnOfStalled(
    absl::string_view method,
    const std::vector<std::pair<size_t, absl::Duration>>& stalled) const {
  if (stalled.empty()) return;
  std::vector<std::string> names;
  for (const auto& [worker, time] : stalled) {
    names.push_back(absl::StrCat(ps::WorkerName(worker, workers_[worker]),
                                 " for ", HowLong(time)));
  }
  LOG(WARNING) << method
               << (WorkersHaveProgress() ? ": no progress of "
                                         : " has not returned: ")
               << absl::StrJoin(names, ", ") << "; "
               << WaitEnds(options_.failure);
}

absl::Status TrainerBase::FindCause(const std::vector<Call>& calls,
                                    absl::string_view method,
                                    const std::vector<bool>& done,
                                    size_t* failed, absl::Status error) const {
  // A worker that lives and has lost its connection to somebody: to another
  // worker, most likely, whose end is the cause.
  const size_t first = *failed;
  if (!absl::IsUnavailable(error) || IsDead(first)) return error;
  LOG(INFO) << "the cause is looked for among the other workers: "
            << error.message();
  const absl::Status cause = ps::AwaitCalls(
      calls, workers_, method, kReminderPeriod,
      [&](size_t i) -> absl::Status {
        if (done[i] || i == first) return absl::OkStatus();
        absl::Status status = calls[i]->Wait(absl::ZeroDuration()).status();
        if (status.ok() || (absl::IsUnavailable(status) && !IsDead(i))) {
          return absl::OkStatus();
        }
        *failed = i;
        return Annotate(status, absl::StrCat("worker ", i));
      },
      absl::Now() + kCauseGrace);
  return cause.ok() ? error : cause;
}

absl::Status TrainerBase::AwaitServer(const Call& call) const {
  // The wait for a quorum is not the server's fault.
  const absl::Duration limit =
      options_.failure.hang_timeout +
      2 * absl::Seconds(options_.server_options.sync_timeout_seconds);
  const auto start = std::chrono::steady_clock::now();
  absl::Duration warn_at = options_.failure.warn_after;
  while (!call->done()) {
    MR_RETURN_IF_ERROR(CheckNotStopped());
    const absl::Duration waited =
        absl::FromChrono(std::chrono::steady_clock::now() - start);
    const absl::Duration left = limit - waited;
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the parameter server has not answered for ",
                       absl::FormatDuration(limit), " (failure.hang_timeout)"));
    }
    if (waited >= warn_at) {
      warn_at = waited + options_.failure.warn_after;
      LOG(WARNING) << "the parameter server has not answered for "
                   << HowLong(waited)
                   << ": it waits for workers, whom its own lines in the log "
                      "name, or hangs itself; "
                   << WaitEnds(options_.failure);
    }
    const absl::Duration turn = std::min(left, warn_at - waited);
    miniray::internal::WaitForCalls(
        {call}, 1, MakesWorkers() ? std::min(turn, kSignalTurn) : turn);
  }
  return absl::OkStatus();
}

}  // namespace miniray::train
