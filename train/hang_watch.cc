#include "train/hang_watch.h"

#include <algorithm>

#include "absl/status/statusor.h"

namespace miniray::train {
namespace {

constexpr absl::Duration kShortestTurn = absl::Milliseconds(5);
constexpr absl::Duration kLongestTurn = absl::Seconds(1);

// Time goes on by itself.
bool IsProgress(const Progress& before, const Progress& now) {
  return before.epoch != now.epoch || before.samples_done != now.samples_done ||
         before.done != now.done;
}

}  // namespace

HangWatch::HangWatch(absl::Duration timeout, bool asks, size_t num_workers)
    : timeout_(timeout), asks_(asks), watched_(num_workers) {
  Restart();
}

absl::Duration HangWatch::turn() const {
  if (timeout_ == absl::InfiniteDuration()) return timeout_;
  return std::clamp(timeout_ / 4, kShortestTurn, kLongestTurn);
}

void HangWatch::Restart() {
  const Clock::time_point now = Clock::now();
  for (Watched& watched : watched_) watched = {.last = now};
}

void HangWatch::Ask(const AnyActorHandle& worker, Clock::time_point now,
                    Watched* watched) {
  if (watched->question.ready()) {
    const absl::StatusOr<Progress> answer = watched->question.Get();
    if (answer.ok()) {
      if (watched->seen.has_value() && IsProgress(*watched->seen, *answer)) {
        watched->last = now;
      }
      watched->seen = *answer;
    }
    watched->question = {};
  }
  if (watched->question.state() == nullptr) {
    watched->question = worker.CallByName<Progress>("GetProgress");
  }
}

std::optional<size_t> HangWatch::Look(
    const std::vector<AnyActorHandle>& workers, const std::vector<bool>& done) {
  const Clock::time_point now = Clock::now();
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (done[i]) continue;
    if (asks_) Ask(workers[i], now, &watched_[i]);
    if (absl::FromChrono(now - watched_[i].last) >= timeout_) return i;
  }
  return std::nullopt;
}

}  // namespace miniray::train
