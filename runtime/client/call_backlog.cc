#include "runtime/client/call_backlog.h"

#include <algorithm>

namespace miniray {
namespace internal {

size_t CallBacklog::LaneOf(const PendingCall& call) {
  const std::string* group = &call.group;
  if (group->empty() && !group_of_method_.empty()) {
    const auto it = group_of_method_.find(call.method);
    if (it != group_of_method_.end()) group = &it->second;
  }
  if (group->empty()) return 0;
  const auto [it, added] = lane_of_group_.emplace(*group, lanes_.size());
  if (added) lanes_.emplace_back();
  return it->second;
}

void CallBacklog::SetGroups(
    std::map<std::string, std::string, std::less<>> of_method) {
  if (of_method == group_of_method_) return;
  // Only what waits for the actor's first answer is here: nothing was sent.
  std::vector<std::unique_ptr<PendingCall>> calls =
      RemoveIf([](const PendingCall&) { return true; });
  group_of_method_ = std::move(of_method);
  for (auto& call : calls) Add(std::move(call));
}

void CallBacklog::Add(std::unique_ptr<PendingCall> call) {
  call->order_ = next_order_++;
  call->lane_ = LaneOf(*call);
  lanes_[call->lane_].calls.push_back(std::move(call));
  ++size_;
}

void CallBacklog::Return(std::unique_ptr<PendingCall> call) {
  Done(*call);
  call->id = 0;
  call->sent = absl::InfiniteFuture();
  auto& calls = lanes_[call->lane_].calls;
  // Near the front, as a rule.
  const auto behind = std::find_if(
      calls.begin(), calls.end(),
      [&](const auto& other) { return other->order_ > call->order_; });
  calls.insert(behind, std::move(call));
  ++size_;
}

CallBacklog::Lane* CallBacklog::NextLane() {
  Lane* next = nullptr;
  for (Lane& lane : lanes_) {
    while (!lane.calls.empty() && lane.calls.front()->removed_) {
      lane.calls.pop_front();
    }
    if (lane.calls.empty()) continue;
    const PendingCall& call = *lane.calls.front();
    if (call.draft != nullptr || lane.sent_calls >= kMaxSentCalls ||
        (lane.sent_bytes > 0 &&
         lane.sent_bytes + call.body.size() > kMaxSentBytes)) {
      continue;
    }
    if (next == nullptr || call.order_ < next->calls.front()->order_) {
      next = &lane;
    }
  }
  return next;
}

PendingCall* CallBacklog::Next() {
  Lane* const lane = NextLane();
  return lane == nullptr ? nullptr : lane->calls.front().get();
}

std::unique_ptr<PendingCall> CallBacklog::TakeNext() {
  Lane* const lane = NextLane();
  if (lane == nullptr) return nullptr;
  std::unique_ptr<PendingCall> call = std::move(lane->calls.front());
  lane->calls.pop_front();
  ++lane->sent_calls;
  lane->sent_bytes += call->body.size();
  --size_;
  return call;
}

void CallBacklog::Done(const PendingCall& call) {
  Lane& lane = lanes_[call.lane_];
  --lane.sent_calls;
  lane.sent_bytes -= call.body.size();
}

std::unique_ptr<PendingCall> CallBacklog::Remove(PendingCall* call) {
  auto taken = std::make_unique<PendingCall>(std::move(*call));
  call->removed_ = true;
  --size_;
  return taken;
}

std::vector<std::unique_ptr<PendingCall>> CallBacklog::RemoveIf(
    absl::FunctionRef<bool(const PendingCall&)> which) {
  std::vector<std::unique_ptr<PendingCall>> taken;
  for (Lane& lane : lanes_) {
    std::deque<std::unique_ptr<PendingCall>> kept;
    for (auto& call : lane.calls) {
      if (call->removed_) continue;
      if (which(*call)) {
        taken.push_back(std::move(call));
      } else {
        kept.push_back(std::move(call));
      }
    }
    lane.calls = std::move(kept);
  }
  size_ -= taken.size();
  std::sort(taken.begin(), taken.end(),
            [](const auto& a, const auto& b) { return a->order_ < b->order_; });
  return taken;
}

}  // namespace internal
}  // namespace miniray
