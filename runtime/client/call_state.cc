#include "runtime/client/call_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace miniray {
namespace internal {
namespace {

// Counts completions of several calls. Outlives the wait: a callback may be
// under way.
struct Tally {
  absl::Mutex mu;
  size_t done ABSL_GUARDED_BY(mu) = 0;
  bool failed ABSL_GUARDED_BY(mu) = false;
};

// Has a tally kept as long as it lives.
class Watch {
 public:
  explicit Watch(const std::vector<std::shared_ptr<CallState>>& calls)
      : calls_(calls), tally_(std::make_shared<Tally>()) {
    callbacks_.reserve(calls.size());
    for (const auto& call : calls) {
      if (call == nullptr) {
        absl::MutexLock lock(&tally_->mu);
        ++tally_->done;
        tally_->failed = true;
        callbacks_.push_back(0);
        continue;
      }
      // The state outlives its callback: it runs or drops it itself.
      callbacks_.push_back(call->OnDone([tally = tally_, state = call.get()] {
        const bool failed = !state->Wait(absl::ZeroDuration()).ok();
        absl::MutexLock lock(&tally->mu);
        ++tally->done;
        tally->failed = tally->failed || failed;
      }));
    }
  }
  ~Watch() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (callbacks_[i] != 0) calls_[i]->Forget(callbacks_[i]);
    }
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  Tally* tally() const { return tally_.get(); }

 private:
  const std::vector<std::shared_ptr<CallState>>& calls_;
  const std::shared_ptr<Tally> tally_;
  std::vector<uint64_t> callbacks_;
};

}  // namespace

CallState::~CallState() {
  if (asked_by_ != nullptr && !wanted_) asked_by_->fetches = false;
}

std::shared_ptr<CallState> CallState::Failed(std::string description,
                                             absl::Status status) {
  auto state = std::make_shared<CallState>(std::move(description));
  state->Complete(std::move(status));
  return state;
}

void CallState::Complete(absl::StatusOr<absl::Cord> result,
                         absl::string_view where,
                         std::shared_ptr<FetchHabit> stayed,
                         std::optional<int32_t> process) {
  std::vector<std::pair<uint64_t, std::function<void()>>> callbacks;
  {
    absl::MutexLock lock(&mu_);
    if (done_) return;
    done_ = true;
    process_ = process;
    if (result.ok()) {
      stayed_ = std::move(stayed);
      result_ = std::move(result);
    } else {
      result_ =
          absl::Status(result.status().code(),
                       absl::StrCat(description_, where.empty() ? "" : " (",
                                    where, where.empty() ? "" : ")", ": ",
                                    result.status().message()));
    }
    callbacks.swap(callbacks_);
  }
  for (auto& [id, callback] : callbacks) callback();
}

absl::StatusOr<absl::Cord> CallState::Wait(absl::Duration timeout) const {
  {
    absl::MutexLock lock(&mu_);
    if (mu_.AwaitWithTimeout(absl::Condition(&done_), timeout)) return result_;
  }
  return TimedOut(timeout);
}

absl::Status CallState::TimedOut(absl::Duration timeout) const {
  std::string state;
  if (const std::shared_ptr<CallOwner> owner = owner_.lock()) {
    state = owner->DescribeCall(this);
  }
  return absl::DeadlineExceededError(absl::StrCat(
      description_, ": no reply within ", absl::FormatDuration(timeout), "; ",
      state, state.empty() ? "" : "; ", "the call goes on"));
}

void CallState::Hold(std::shared_ptr<void> hold) {
  absl::MutexLock lock(&mu_);
  hold_ = std::move(hold);
}

bool CallState::holds() const {
  absl::MutexLock lock(&mu_);
  return hold_.use_count() > 0;  // It may own nothing but its deleter.
}

absl::StatusOr<FetchedValue> CallState::WaitAndFetch(absl::Duration timeout,
                                                     bool last) const {
  const absl::Time deadline = absl::Now() + timeout;
  wanted_ = true;
  absl::StatusOr<absl::Cord> result = Wait(timeout);
  if (!result.ok()) return result.status();
  bool stayed;
  {
    absl::MutexLock lock(&mu_);
    if (fetched_.has_value()) return FetchedValue{*fetched_};
    stayed = stayed_ != nullptr;
    if (stayed) stayed_->fetches = true;
  }
  if (!stayed && !by_reference_) return FetchedValue{*std::move(result)};
  const std::shared_ptr<ObjectFetcher> fetcher = fetcher_.lock();
  if (fetcher == nullptr) {
    return absl::CancelledError(
        absl::StrCat(description_, ": the cluster connection was shut down"));
  }
  absl::StatusOr<FetchedValue> value =
      fetcher->FetchObject(*result, deadline - absl::Now(), /*alone=*/stayed);
  if (!value.ok()) {
    return absl::Status(
        value.status().code(),
        absl::StrCat(description_, ": ", value.status().message()));
  }
  if (stayed && !last) {
    // As if it had come with the reply.
    value->own = false;
    absl::MutexLock lock(&mu_);
    fetched_ = value->bytes;
  }
  return value;
}

bool CallState::lies_elsewhere() const {
  if (by_reference_) return true;
  absl::MutexLock lock(&mu_);
  return stayed_ != nullptr;
}

void CallState::Cancel() {
  if (done()) return;
  if (const std::shared_ptr<CallOwner> owner = owner_.lock()) {
    owner->CancelCall(this);
  }
}

bool CallState::done() const {
  absl::MutexLock lock(&mu_);
  return done_;
}

std::optional<int32_t> CallState::process() const {
  absl::MutexLock lock(&mu_);
  return process_;
}

uint64_t CallState::OnDone(std::function<void()> callback) {
  {
    absl::MutexLock lock(&mu_);
    if (!done_) {
      callbacks_.emplace_back(next_callback_, std::move(callback));
      return next_callback_++;
    }
  }
  callback();
  return 0;
}

void CallState::Forget(uint64_t callback) {
  absl::MutexLock lock(&mu_);
  std::erase_if(callbacks_, [callback](const auto& item) {
    return item.first == callback;
  });
}

std::vector<size_t> WaitForCalls(
    const std::vector<std::shared_ptr<CallState>>& calls, size_t num_ready,
    absl::Duration timeout) {
  num_ready = std::min(num_ready, calls.size());
  {
    const Watch watch(calls);
    Tally* const tally = watch.tally();
    absl::MutexLock lock(&tally->mu);
    auto enough = [&] {
      tally->mu.AssertHeld();
      return tally->done >= num_ready;
    };
    tally->mu.AwaitWithTimeout(absl::Condition(&enough), timeout);
  }
  std::vector<size_t> ready;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i] == nullptr || calls[i]->done()) ready.push_back(i);
  }
  return ready;
}

absl::Status WaitForAllOrFailure(
    const std::vector<std::shared_ptr<CallState>>& calls,
    absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  {
    const Watch watch(calls);
    Tally* const tally = watch.tally();
    absl::MutexLock lock(&tally->mu);
    auto finished = [&] {
      tally->mu.AssertHeld();
      return tally->failed || tally->done == calls.size();
    };
    tally->mu.AwaitWithDeadline(absl::Condition(&finished), deadline);
  }
  absl::Status late;
  for (const auto& call : calls) {
    if (call == nullptr) {
      return absl::FailedPreconditionError("empty ObjectRef");
    }
    if (!call->done()) {
      if (late.ok()) {
        late = call->TimedOut(timeout);
      }
      continue;
    }
    absl::Status status = call->Wait(absl::ZeroDuration()).status();
    if (!status.ok()) return status;
  }
  return late;
}

}  // namespace internal
}  // namespace miniray
