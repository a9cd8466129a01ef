// The part of TrainerBase that makes workers anew.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "proto/head.pb.h"
#include "ps/await_calls.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "train/actor_states.h"
#include "train/stop_signals.h"
#include "train/trainer_base.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

// So much later the head may hear of a worker's death than who called it.
constexpr absl::Duration kDeathNotice = absl::Seconds(2);

// How long a replacement may wait for a place where training can go on with
// fewer workers: the process of the lost one may still be ending.
constexpr absl::Duration kPlaceGrace = absl::Seconds(2);

// How long a worker that lives may take to answer a call that does nothing.
constexpr absl::Duration kPingTimeout = absl::Seconds(5);

// No worker has it: the answer is that there is none.
constexpr char kPing[] = "NoSuchMethod";

// Of the failures behind the first, those that a message has.
constexpr size_t kMaxLaterErrors = 3;

}  // namespace

absl::Status TrainerBase::RunAndRecover() {
  const FailureConfig& config = options_.failure;
  starting_ = true;
  absl::Status status =
      Begin(std::exchange(resumed_, std::nullopt), /*anew=*/false);
  starting_ = false;
  while (true) {
    if (status.ok()) {
      heals_ =
          config.policy == FailurePolicy::kHeal && config.max_failures != 0;
      status = RunEpochs();
      heals_ = false;
      if (status.ok()) return status;
      EpochsToTrain(current_epoch_ + 1);  // A stop may have been asked for.
    }
    int worker_id = -1;
    if (absl::StrContains(status.message(), failed_call_.message())) {
      worker_id = failed_worker_;
    }
    const bool cancelled = absl::IsCancelled(status) && StoppedBySignal();
    if (gives_up_ || cancelled || !BearFailure(worker_id, status)) break;
    EpochsToTrain(current_epoch_ + 1);  // Or has been, by a hook.
    recovering_ = true;
    Pause();
    LOG(WARNING) << "all workers are made anew";
    status = Regroup();
    recovering_ = false;
  }
  return FirstError(status);
}

absl::Status TrainerBase::Regroup() {
  MR_RETURN_IF_ERROR(KillWorkers());
  ++num_regroups_;
  run_id_ = NewId("train");
  needs_sync_ = false;
  checkpointed_epochs_ = 0;
  timing_ = {};
  std::optional<Checkpoint> checkpoint;
  if (store_ != nullptr) {
    NoteCheckpoint(store_->Wait());
    std::vector<std::string> warnings;
    MR_ASSIGN_OR_RETURN(checkpoint, LastCheckpoint(&warnings));
    for (const std::string& warning : warnings) context_.Warn(warning);
  }
  return Begin(std::move(checkpoint), /*anew=*/true);
}

absl::Status TrainerBase::Heal(size_t worker, const absl::Status& error) {
  const int id = static_cast<int>(worker);
  if (!BearFailure(id, Annotate(error, EpochName(current_epoch_)))) {
    return error;
  }
  const Timing timing = timing_;  // The call that is made again counts all.
  recovering_ = true;
  Pause();
  const absl::Status replaced = Replace(worker);
  recovering_ = false;
  timing_ = timing;
  if (replaced.ok()) LOG(INFO) << "worker " << id << " has been made anew";
  return Annotate(replaced,
                  absl::StrCat("worker ", id, " in the place of a lost one"));
}

absl::Status TrainerBase::Replace(size_t worker) {
  MR_RETURN_IF_ERROR(CheckNotStopped());
  MR_RETURN_IF_ERROR(KillWorker(worker));
  MR_RETURN_IF_ERROR(EndNewcomers());  // They would take its place.
  run_id_ = NewId("train");            // The lost one may still have its name.
  const int id = static_cast<int>(worker);
  MR_ASSIGN_OR_RETURN(workers_[worker], CreateCheckedWorker(id));
  // Fewer workers do, too.
  const bool may_shrink = num_workers() > options_.num_workers;
  const absl::Time begin = absl::Now();
  bool has_place = true;
  const absl::Status started = WaitForStart(
      *cluster_, {{ps::WorkerName(worker, workers_[worker]), workers_[worker]}},
      begin, options_.start_timeout, [&] {
        has_place = !may_shrink || absl::Now() < begin + kPlaceGrace ||
                    !WaitsForPlace(workers_[worker]);
        return !has_place || !CheckNotStopped().ok();
      });
  if (!has_place) {
    return absl::UnavailableError(
        "it has no place at once, and fewer workers do, too (max_workers)");
  }
  MR_RETURN_IF_ERROR(started);
  WatchWorkers();
  return AfterReplacement(id);
}

absl::StatusOr<bool> TrainerBase::HealLost(absl::Status* error) {
  // The head may hear of a death later than those that it cut off.
  const absl::Time deadline = absl::Now() + kDeathNotice;
  auto lost = FindLost(absl::IsDeadlineExceeded(*error));
  while (lost.empty() && absl::IsUnavailable(*error) &&
         absl::Now() < deadline) {
    absl::SleepFor(kSignalTurn);
    lost = FindLost(/*hung=*/false);
  }
  if (lost.empty()) return false;
  // A hung one is known to nobody else.
  if (absl::IsDeadlineExceeded(*error)) {
    *error = Annotate(lost.front().second, error->message());
  }
  failed_worker_ = static_cast<int>(lost.front().first);
  failed_call_ = *error;
  if (!heals_) return false;
  // All of them before the first is made anew: the server may wait for another.
  recovering_ = true;
  absl::Status killed;
  for (const auto& [worker, status] : lost) killed.Update(KillWorker(worker));
  recovering_ = false;
  MR_RETURN_IF_ERROR(killed);
  for (const auto& [worker, status] : lost) {
    MR_RETURN_IF_ERROR(Heal(worker, Annotate(status, "synchronisation")));
  }
  return true;
}

std::vector<std::pair<size_t, absl::Status>> TrainerBase::FindLost(
    bool hung) const {
  std::vector<Call> pings(workers_.size());
  std::vector<std::pair<size_t, absl::Status>> lost;
  for (size_t i = 0; hung && i < workers_.size(); ++i) {
    pings[i] = workers_[i].CallByName<void>(kPing).state();
  }
  if (hung) {
    miniray::internal::WaitForCalls(
        pings, pings.size(),
        std::min(kPingTimeout, options_.failure.hang_timeout));
  }
  const std::vector<bool> dead = DeadWorkers();
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (dead[i]) {
      const absl::Status status = workers_[i].WaitReady(absl::ZeroDuration());
      lost.emplace_back(i, absl::UnavailableError(absl::StrCat(
                               "worker ", i, ": ", status.message())));
    } else if (hung && !pings[i]->done()) {
      lost.emplace_back(i, absl::DeadlineExceededError(absl::StrCat(
                               ps::WorkerName(i, workers_[i]),
                               " does not answer: it is taken for hung")));
    }
  }
  return lost;
}

std::vector<bool> TrainerBase::DeadWorkers() const {
  std::vector<bool> dead(workers_.size(), false);
  const auto states = ActorStates(*cluster_);
  if (!states.ok()) {
    LOG(WARNING) << "which workers live is not known: "
                 << states.status().message();
    return dead;
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    const auto it = states->find(workers_[i].actor_id());
    dead[i] = it != states->end() && it->second.state() == v1::ACTOR_STATE_DEAD;
  }
  return dead;
}

absl::Status TrainerBase::UntilHeadAnswers(
    absl::FunctionRef<absl::Status()> call) const {
  const absl::Time deadline = absl::Now() + options_.start_timeout;
  while (true) {
    MR_RETURN_IF_ERROR(CheckNotStopped());
    const absl::Status status = call();
    const bool silent =
        absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    if (!silent || !recovering_ || absl::Now() >= deadline) return status;
    absl::SleepFor(kSignalTurn);
  }
}

bool TrainerBase::BearFailure(int worker_id, const absl::Status& error) {
  const int limit = options_.failure.max_failures;
  const int number = static_cast<int>(result_.failures.size()) + 1;
  const WorkerFailure failure{
      .epoch = current_epoch_,
      .worker_id = worker_id,
      .error = error,
      .number = number,
      .fatal = (limit >= 0 && number > limit) || StoppedBySignal()};
  result_.failures.push_back(failure);
  gives_up_ = failure.fatal;
  if (!failure.fatal) {
    LOG(WARNING) << "failure " << number << " of "
                 << (limit < 0 ? "any number" : absl::StrCat(limit))
                 << " that are borne: " << error.message();
  }
  OnWorkerFailure(failure);
  for (const auto& callback : callbacks_) {
    callback->OnWorkerFailure(context_, failure);
  }
  return !failure.fatal;
}

absl::Status TrainerBase::FirstError(const absl::Status& last) const {
  const std::vector<WorkerFailure>& failures = result_.failures;
  if (failures.empty()) return last;
  const absl::Status& first = failures.front().error;
  std::vector<std::string> later;
  for (size_t i = 1; i < failures.size(); ++i) {
    later.emplace_back(failures[i].error.message());
  }
  if (failures.back().error != last) later.emplace_back(last.message());
  if (later.empty()) return first;
  std::string text(first.message());
  // The last ones tell why training could not go on.
  const size_t left_out =
      later.size() - std::min(later.size(), kMaxLaterErrors);
  if (left_out > 0) absl::StrAppend(&text, "; ", left_out, " more failures");
  for (size_t i = left_out; i < later.size(); ++i) {
    absl::StrAppend(&text, "; then: ", later[i]);
  }
  return absl::Status(first.code(), text);
}

void TrainerBase::Pause() {
  // An epoch that is trained again is none that has come further.
  epochs_to_recover_ = std::max(epochs_to_recover_,
                                static_cast<int>(result_.history.size()) + 1);
  if (++failures_in_a_row_ == 1) return;
  const absl::Time end = absl::Now() + backoff_.Next();
  while (absl::Now() < end && CheckNotStopped().ok()) {
    absl::SleepFor(std::min(kSignalTurn, end - absl::Now()));
  }
}

absl::Status TrainerBase::CheckNotStopped() const {
  if (!MakesWorkers() || !StoppedBySignal()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat(
      StopSignals::Name(), " came ",
      recovering_ ? "while workers were made anew" : "before training began"));
}

}  // namespace miniray::train
