// ActorConnection: calls with a timeout.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/background.h"
#include "runtime/client/actor_connection.h"

namespace miniray {
namespace internal {

void ActorConnection::WatchDeadline(const PendingCall& call) {
  if (call.deadline == absl::InfiniteFuture()) return;
  deadlines_.emplace(call.deadline, call.state.get());
  SetTimer();
}

void ActorConnection::ForgetDeadline(const PendingCall& call) {
  if (call.deadline == absl::InfiniteFuture()) return;
  deadlines_.erase({call.deadline, call.state.get()});
}

void ActorConnection::SetTimer() {
  if (deadlines_.empty()) return;
  const absl::Time due = deadlines_.begin()->first;
  if (!timers_.empty() && *timers_.begin() <= due) return;
  timers_.insert(due);
  RunInBackground(
      [weak = weak_from_this(), due] {
        if (auto self = weak.lock()) self->OnTimer(due);
      },
      due - absl::Now());
}

void ActorConnection::OnTimer(absl::Time due) {
  Outcomes outcomes;
  {
    absl::MutexLock lock(&mu_);
    timers_.erase(due);
    const absl::Time now = std::max(due, absl::Now());
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      const CallState* const state = deadlines_.begin()->second;
      deadlines_.erase(deadlines_.begin());
      Expire(state, &outcomes);
    }
    SetTimer();
    Pump();
  }
  Run(std::move(outcomes));
}

void ActorConnection::Expire(const CallState* state, Outcomes* outcomes) {
  auto* const call = static_cast<PendingCall*>(state->owner_data());
  const absl::Status status = ExpiredStatus(*call);
  if (call->id == 0) return Fail(unsent_.Remove(call), status, outcomes);
  // Its number is taken, and the actor may be reading its arguments.
  state->set_owner_data(nullptr);
  outcomes->push_back({.state = std::move(call->state), .result = status});
  if (std::exchange(call->cancelled, true)) return;
  cancelled_.push_back(call->id);
}

std::string ActorConnection::NotDone(const PendingCall& call) {
  return absl::StrCat("not done within its timeout of ",
                      absl::FormatDuration(call.timeout));
}

absl::Status ActorConnection::ExpiredStatus(const PendingCall& call) const {
  return absl::DeadlineExceededError(
      absl::StrCat(NotDone(call), "; ", Describe(&call), "; ",
                   call.id == 0 ? "it never runs" : "it is cancelled"));
}

}  // namespace internal
}  // namespace miniray
