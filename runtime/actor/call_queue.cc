#include "runtime/actor/call_queue.h"

#include <iterator>
#include <utility>

#include "runtime/actor/call_session.h"

namespace miniray {
namespace internal {
namespace {

// Cancelled calls are taken out once they are so many and half of all, or have
// so many bytes.
constexpr size_t kManyCancelled = 64;
constexpr uint64_t kManyCancelledBytes = uint64_t{16} << 20;

bool IsCancelled(const QueuedCall& call) {
  return call.state.load(std::memory_order_acquire) ==
         QueuedCall::State::kCancelled;
}

}  // namespace

CallQueue::Calls CallQueue::Push(Calls calls) {
  absl::MutexLock lock(&mu_);
  if (closed_) return calls;
  for (auto& call : calls) calls_.push_back(std::move(call));
  return {};
}

std::unique_ptr<QueuedCall> CallQueue::Pop(absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  auto ready = [this] {
    mu_.AssertHeld();
    return closed_ || !calls_.empty();
  };
  while (true) {
    if (!ready()) {
      ++idle_;
      mu_.AwaitWithDeadline(absl::Condition(&ready), deadline);
      --idle_;
    }
    if (calls_.empty()) return nullptr;
    std::unique_ptr<QueuedCall> call = std::move(calls_.front());
    calls_.pop_front();
    const CallSession* session = call->session.get();
    if (!session->stalled() &&
        (parked_.empty() || parked_.find(session) == parked_.end())) {
      return call;
    }
    parked_[session].push_back(std::move(call));
  }
}

void CallQueue::OnCancelled(uint64_t bytes) {
  Calls dropped;  // Die unlocked: they may be large.
  absl::MutexLock lock(&mu_);
  ++cancelled_;
  cancelled_bytes_ += bytes;
  if (cancelled_bytes_ < kManyCancelledBytes &&
      (cancelled_ < kManyCancelled || cancelled_ < calls_.size() / 2)) {
    return;
  }
  cancelled_ = 0;
  cancelled_bytes_ = 0;
  auto take_out = [&](std::deque<std::unique_ptr<QueuedCall>>* calls) {
    std::erase_if(*calls, [&](std::unique_ptr<QueuedCall>& call) {
      if (!IsCancelled(*call)) return false;
      dropped.push_back(std::move(call));
      return true;
    });
  };
  take_out(&calls_);
  // One that is empty stays: what comes for its session waits behind it.
  for (auto& [session, calls] : parked_) take_out(&calls);
}

void CallQueue::Resume(const CallSession* session) {
  absl::MutexLock lock(&mu_);
  auto it = parked_.find(session);
  if (it == parked_.end()) return;
  calls_.insert(calls_.begin(), std::make_move_iterator(it->second.begin()),
                std::make_move_iterator(it->second.end()));
  parked_.erase(it);
}

CallQueue::Calls CallQueue::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  Calls dropped;
  for (auto& [session, calls] : parked_) {
    for (auto& call : calls) dropped.push_back(std::move(call));
  }
  for (auto& call : calls_) dropped.push_back(std::move(call));
  parked_.clear();
  calls_.clear();
  return dropped;
}

bool CallQueue::closed() const {
  absl::MutexLock lock(&mu_);
  return closed_;
}

size_t CallQueue::size() const {
  absl::MutexLock lock(&mu_);
  size_t size = calls_.size();
  for (const auto& [session, calls] : parked_) size += calls.size();
  return size;
}

size_t CallQueue::waiting() const {
  absl::MutexLock lock(&mu_);
  size_t waiting = 0;
  auto count = [&](const std::deque<std::unique_ptr<QueuedCall>>& calls) {
    for (const auto& call : calls) waiting += IsCancelled(*call) ? 0 : 1;
  };
  count(calls_);
  for (const auto& [session, calls] : parked_) count(calls);
  return waiting;
}

int CallQueue::idle() const {
  absl::MutexLock lock(&mu_);
  return idle_;
}

}  // namespace internal
}  // namespace miniray
