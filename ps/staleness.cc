#include "ps/staleness.h"

#include <algorithm>
#include <cstddef>

namespace miniray::ps {

WorkerClocks::WorkerClocks(const Options& options) : options_(options) {
  for (int worker = 0; worker < options.num_workers; ++worker) Join(worker);
}

void WorkerClocks::Join(int worker) {
  auto it = clocks_.find(worker);
  if (it != clocks_.end() && it->second.active) return;
  int64_t slowest = -1;
  for (const auto& [other, clock] : clocks_) {
    if (!clock.active) continue;
    slowest = slowest < 0 ? clock.clock : std::min(slowest, clock.clock);
  }
  WorkerClock& joined = clocks_[worker];
  joined.worker = worker;
  joined.active = true;
  joined.clock = std::max(joined.clock, slowest);
}

void WorkerClocks::Leave(int worker) {
  auto it = clocks_.find(worker);
  if (it != clocks_.end()) it->second.active = false;
}

bool WorkerClocks::Taken(const PushId& id) const {
  return id.sequence <= Of(id.worker).last_sequence;
}

void WorkerClocks::Take(const PushId& id) {
  Join(id.worker);
  WorkerClock& clock = clocks_[id.worker];
  ++clock.clock;
  clock.last_sequence = id.sequence;
}

std::vector<int> WorkerClocks::HeldUpBy(int worker) const {
  if (options_.policy != StalenessPolicy::kWait ||
      options_.max_staleness == kUnboundedStaleness) {
    return {};
  }
  const int64_t clock = Of(worker).clock;
  std::vector<int> slow;
  for (const auto& [other, its] : clocks_) {
    if (its.active && clock - its.clock > options_.max_staleness) {
      slow.push_back(other);
    }
  }
  return slow;
}

double WorkerClocks::LearningRateScale(int64_t staleness) const {
  if (options_.policy != StalenessPolicy::kDamp ||
      options_.max_staleness == kUnboundedStaleness ||
      staleness <= options_.max_staleness) {
    return 1;
  }
  return 1 / (1 + static_cast<double>(staleness - options_.max_staleness));
}

std::vector<int> WorkerClocks::Active() const {
  std::vector<int> active;
  for (const auto& [worker, clock] : clocks_) {
    if (clock.active) active.push_back(worker);
  }
  return active;
}

std::vector<WorkerClock> WorkerClocks::State() const {
  std::vector<WorkerClock> state;
  for (const auto& [worker, clock] : clocks_) state.push_back(clock);
  return state;
}

WorkerClock WorkerClocks::Of(int worker) const {
  auto it = clocks_.find(worker);
  if (it != clocks_.end()) return it->second;
  return {.worker = worker, .active = false};
}

void WorkerClocks::Restore(const std::vector<WorkerClock>& state) {
  for (const WorkerClock& clock : state) clocks_[clock.worker] = clock;
}

void CountStaleness(int64_t staleness, std::vector<int64_t>* histogram) {
  const auto index = static_cast<size_t>(
      std::clamp(staleness, int64_t{0}, kMaxCountedStaleness));
  if (histogram->size() <= index) histogram->resize(index + 1);
  ++(*histogram)[index];
}

}  // namespace miniray::ps
