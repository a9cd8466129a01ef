#include "train/evaluators.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/await_calls.h"
#include "runtime/base/status_macros.h"
#include "train/merge_metrics.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

std::string Name(int epoch, size_t evaluator) {
  return absl::StrCat("evaluation of epoch ", epoch + 1,
                      " beside training: evaluator ", evaluator);
}

}  // namespace

void Evaluators::Begin(int epoch, const Config* config) {
  epoch_ = epoch;
  start_ = Clock::now();
  duration_ = std::make_shared<std::atomic<int64_t>>(0);
  calls_.clear();
  const int num_shards = static_cast<int>(actors_.size());
  for (int shard = 0; shard < num_shards; ++shard) {
    const AnyActorHandle& actor = actors_[shard];
    calls_.push_back(
        config == nullptr
            ? actor.CallByName<Metrics>("EvaluateShard", shard, num_shards)
            : actor.CallByName<Metrics>("EvaluateShard", shard, num_shards,
                                        *config));
    calls_.back().state()->OnDone([start = start_, duration = duration_] {
      const int64_t mine =
          absl::ToInt64Nanoseconds(absl::FromChrono(Clock::now() - start));
      int64_t longest = duration->load();
      while (mine > longest &&
             !duration->compare_exchange_weak(longest, mine)) {
      }
    });
  }
}

absl::StatusOr<std::optional<Evaluators::Outcome>> Evaluators::Collect(
    bool wait, absl::Duration hang_timeout) {
  if (!epoch_.has_value()) return std::nullopt;
  std::vector<std::shared_ptr<miniray::internal::CallState>> states;
  for (const auto& call : calls_) states.push_back(call.state());
  std::vector<bool> done(states.size());
  const auto time_left = [&] {
    return hang_timeout - absl::FromChrono(Clock::now() - start_);
  };
  absl::Status status = ps::AwaitCalls(
      states, actors_, "EvaluateShard", kReminderPeriod,
      [&](size_t i) -> absl::Status {
        done[i] = true;
        // The status names class, method and actor itself.
        return Annotate(states[i]->Wait(absl::ZeroDuration()).status(),
                        Name(*epoch_, i));
      },
      absl::Now() + (wait ? time_left() : absl::ZeroDuration()));
  const auto missing = std::find(done.begin(), done.end(), false);
  if (status.ok() && missing != done.end()) {
    if (time_left() > absl::ZeroDuration()) return std::nullopt;
    status = absl::DeadlineExceededError(absl::StrCat(
        Name(*epoch_, missing - done.begin()), " has not returned for ",
        absl::FormatDuration(hang_timeout),
        " (failure.hang_timeout): it is taken for hung"));
  }
  const int epoch = *std::exchange(epoch_, std::nullopt);
  const std::vector<ObjectRef<Metrics>> calls = std::exchange(calls_, {});
  MR_RETURN_IF_ERROR(status);
  MR_ASSIGN_OR_RETURN(const std::vector<Metrics> shards, GetAll(calls));
  absl::StatusOr<Metrics> metrics = MergeEvaluation(shards);
  if (!metrics.ok()) {
    return Annotate(metrics.status(),
                    absl::StrCat("evaluation of epoch ", epoch + 1));
  }
  absl::Duration duration = absl::Nanoseconds(duration_->load());
  // Calls are done a moment before they say so.
  if (duration == absl::ZeroDuration()) {
    duration = absl::FromChrono(Clock::now() - start_);
  }
  (*metrics)["seconds"] = absl::ToDoubleSeconds(duration);
  return Outcome{.epoch = epoch, .metrics = *std::move(metrics)};
}

absl::Status Evaluators::Stop() {
  epoch_.reset();
  calls_.clear();
  for (; !actors_.empty(); actors_.pop_back()) {
    const absl::Status killed = actors_.back().Kill();
    if (absl::IsUnavailable(killed) || absl::IsDeadlineExceeded(killed)) {
      return Annotate(killed, "ending the evaluators");
    }
    if (!killed.ok()) VLOG(1) << "ending an evaluator: " << killed;
  }
  return absl::OkStatus();
}

void Evaluators::StopForGood() {
  const absl::Status stopped = Stop();
  LOG_IF(WARNING, !stopped.ok())
      << "some may live until this program leaves the cluster: "
      << stopped.message();
  actors_.clear();
}

}  // namespace miniray::train
