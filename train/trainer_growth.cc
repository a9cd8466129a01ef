// The part of TrainerBase that takes further workers in (max_workers).

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "proto/head.pb.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "train/actor_states.h"
#include "train/trainer_base.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

// So long an actor may wait before that tells that there is no place for it:
// the processes of those before it may still be ending.
constexpr absl::Duration kPlaceGrace = absl::Seconds(1);

bool HasStarted(const AnyActorHandle& actor) {
  return actor.WaitReady(absl::ZeroDuration()).ok();
}

}  // namespace

bool TrainerBase::WaitsForPlace(const AnyActorHandle& actor) const {
  const auto states = ActorStates(*cluster_);
  if (!states.ok()) return false;
  const auto it = states->find(actor.actor_id());
  return it != states->end() && it->second.state() == v1::ACTOR_STATE_PENDING;
}

int TrainerBase::TakeInNewcomers() {
  const int before = static_cast<int>(workers_.size());
  const absl::Status recruited = Recruit(options_.max_workers - before);
  if (!recruited.ok()) {
    context_.Warn(absl::StrCat("no further workers could be made: ",
                               recruited.message()));
  }
  AwaitNewcomers();
  const auto first_absent =
      std::find_if_not(newcomers_.begin(), newcomers_.end(), &HasStarted);
  workers_.insert(workers_.end(), newcomers_.begin(), first_absent);
  // The next one stays, to take the place that there will be.
  newcomers_.erase(newcomers_.begin(), first_absent);
  // One that cannot be ended now, the head being away, may yet start.
  while (newcomers_.size() > 1 &&
         EndActor(newcomers_.back(), "a newcomer").ok()) {
    newcomers_.pop_back();
  }
  NoteNumWorkers();
  return static_cast<int>(workers_.size()) - before;
}

absl::Status TrainerBase::Recruit(int count) {
  if (newcomers_.size() < static_cast<size_t>(count)) {
    run_id_ = NewId("train");  // Names of those that have ended may still live.
  }
  while (newcomers_.size() < static_cast<size_t>(count)) {
    const size_t id = workers_.size() + newcomers_.size();
    MR_ASSIGN_OR_RETURN(AnyActorHandle newcomer,
                        CreateCheckedWorker(static_cast<int>(id)));
    newcomers_.push_back(std::move(newcomer));
  }
  return absl::OkStatus();
}

void TrainerBase::AwaitNewcomers() {
  const absl::Time begin = absl::Now();
  while (absl::Now() < begin + options_.start_timeout &&
         CheckNotStopped().ok() && !StoppedBySignal()) {
    const auto states = ActorStates(*cluster_);
    if (!states.ok()) return;
    const bool grace = absl::Now() < begin + kPlaceGrace;
    const auto awaited = std::find_if(
        newcomers_.begin(), newcomers_.end(), [&](const auto& newcomer) {
          const auto it = states->find(newcomer.actor_id());
          if (it == states->end()) return false;
          const v1::ActorState state = it->second.state();
          return state == v1::ACTOR_STATE_STARTING ||
                 (grace && state == v1::ACTOR_STATE_PENDING);
        });
    if (awaited == newcomers_.end()) return;
    awaited->WaitReady(kSignalTurn).IgnoreError();
  }
}

absl::Status TrainerBase::Grow() {
  const int before = static_cast<int>(workers_.size());
  // Those that have not been synchronised have no weights in common yet.
  if (!grows_ || before >= options_.max_workers || needs_sync_) {
    return absl::OkStatus();
  }
  if (!newcomers_.empty()) {
    const absl::Status ready = newcomers_[0].WaitReady(absl::ZeroDuration());
    if (absl::IsDeadlineExceeded(ready)) return absl::OkStatus();
    if (ready.ok()) {
      // It has a place: there may be more.
      if (TakeInNewcomers() == 0) return absl::OkStatus();
      LOG(INFO) << "training goes on with " << workers_.size()
                << " workers, up from " << before;
      failed_worker_ = -1;
      const absl::Status dealt = AfterGrowth(before);
      if (dealt.ok() || failed_worker_ < before) return dealt;
      return LeaveOut(before, dealt);
    }
    // No node could hold it for long, or it has failed; or the head is away,
    // and it may live.
    if (!EndNewcomers().ok()) return absl::OkStatus();
    LOG(WARNING) << "a further worker could not start: " << ready.message();
  }
  const absl::Status recruited = Recruit(1);
  if (!recruited.ok()) {
    context_.Warn(
        absl::StrCat("no further worker could be made: ", recruited.message()));
  }
  return absl::OkStatus();
}

absl::Status TrainerBase::LeaveOut(int num_workers, const absl::Status& error) {
  grows_ = false;
  context_.Warn(absl::StrCat(
      "training goes on with ", num_workers,
      " workers and takes in no more, since one could not get its share: ",
      error.message()));
  MR_RETURN_IF_ERROR(EndNewcomers());
  for (; workers_.size() > static_cast<size_t>(num_workers);
       workers_.pop_back()) {
    MR_RETURN_IF_ERROR(KillWorker(workers_.size() - 1));
  }
  NoteNumWorkers();
  return AfterGrowth(num_workers);
}

absl::Status TrainerBase::EndNewcomers() {
  for (; !newcomers_.empty(); newcomers_.pop_back()) {
    MR_RETURN_IF_ERROR(EndActor(newcomers_.back(), "a newcomer"));
  }
  return absl::OkStatus();
}

void TrainerBase::NoteNumWorkers() {
  const int num_workers = static_cast<int>(workers_.size());
  context_.set_num_workers(num_workers);
  SetNumWorkers(num_workers);
}

}  // namespace miniray::train
