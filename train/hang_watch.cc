#include "train/hang_watch.h"

#include <algorithm>

#include "absl/status/statusor.h"

namespace miniray::train {
namespace {

constexpr absl::Duration kShortestTurn = absl::Milliseconds(5);
constexpr absl::Duration kLongestTurn = absl::Seconds(1);
// Where nobody is killed.
constexpr absl::Duration kLongestIdleTurn = absl::Seconds(15);

// Time goes on by itself.
bool IsProgress(const Progress& before, const Progress& now) {
  return before.epoch != now.epoch || before.samples_done != now.samples_done ||
         before.done != now.done;
}

}  // namespace

HangWatch::HangWatch(absl::Duration timeout, absl::Duration warn_after,
                     bool asks, size_t num_workers)
    : timeout_(timeout),
      warn_after_(warn_after),
      asks_(asks),
      watched_(num_workers) {
  Restart();
}

absl::Duration HangWatch::turn() const {
  const absl::Duration shorter = std::min(timeout_, warn_after_);
  if (shorter == absl::InfiniteDuration()) return shorter;
  return std::clamp(
      shorter / 4, kShortestTurn,
      timeout_ == absl::InfiniteDuration() ? kLongestIdleTurn : kLongestTurn);
}

void HangWatch::Restart() {
  const Clock::time_point now = Clock::now();
  for (Watched& watched : watched_) watched = {.last = now, .told = now};
}

void HangWatch::Ask(const AnyActorHandle& worker, Clock::time_point now,
                    Watched* watched) {
  if (watched->question.ready()) {
    const absl::StatusOr<Progress> answer = watched->question.Get();
    if (answer.ok()) {
      if (watched->seen.has_value() && IsProgress(*watched->seen, *answer)) {
        watched->last = watched->told = now;
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

std::vector<std::pair<size_t, absl::Duration>> HangWatch::Stalled(
    const std::vector<bool>& done) {
  const Clock::time_point now = Clock::now();
  std::vector<std::pair<size_t, absl::Duration>> stalled;
  for (size_t i = 0; i < watched_.size(); ++i) {
    Watched& watched = watched_[i];
    if (done[i] || absl::FromChrono(now - watched.told) < warn_after_) continue;
    watched.told = now;
    stalled.emplace_back(i, absl::FromChrono(now - watched.last));
  }
  return stalled;
}

}  // namespace miniray::train
