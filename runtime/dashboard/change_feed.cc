#include "runtime/dashboard/change_feed.h"

#include <utility>

#include "absl/time/clock.h"

namespace miniray {
namespace {

constexpr absl::Duration kStatePeriod = absl::Milliseconds(500);
// Between two news: of ten runs that report as fast as they may, people see as
// much of it.
constexpr absl::Duration kPause = absl::Milliseconds(200);

}  // namespace

ChangeFeed::ChangeFeed(Sources sources)
    : sources_(std::move(sources)), thread_([this] { Look(); }) {}

ChangeFeed::~ChangeFeed() {
  Stop();
  thread_.join();
}

ChangeFeed::Watch::Watch(ChangeFeed* feed) : feed_(*feed) {
  absl::MutexLock lock(&feed_.mu_);
  ++feed_.watches_;
}

ChangeFeed::Watch::~Watch() {
  absl::MutexLock lock(&feed_.mu_);
  --feed_.watches_;
}

ChangeFeed::Versions ChangeFeed::Watch::Await(const Versions& seen,
                                              absl::Duration timeout) {
  absl::MutexLock lock(&feed_.mu_);
  const auto news = [this, &seen]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(feed_.mu_) {
    return feed_.stopped_ || !(feed_.versions_ == seen);
  };
  feed_.mu_.AwaitWithTimeout(absl::Condition(&news), timeout);
  return feed_.versions_;
}

void ChangeFeed::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
}

bool ChangeFeed::stopped() const {
  absl::MutexLock lock(&mu_);
  return stopped_;
}

void ChangeFeed::Look() {
  uint64_t fingerprint = 0;
  int64_t runs = 0;
  absl::Time next_state = absl::InfinitePast();
  const auto watched = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopped_ || watches_ > 0;
  };
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&watched));
      if (stopped_) return;
    }
    bool state_changed = false;
    if (absl::Now() >= next_state) {
      const uint64_t now = sources_.state_fingerprint();
      state_changed = now != std::exchange(fingerprint, now);
      next_state = absl::Now() + kStatePeriod;
    }
    if (sources_.await_runs && !state_changed) {
      runs = sources_.await_runs(runs, next_state - absl::Now());
    }
    absl::MutexLock lock(&mu_);
    if (state_changed) ++versions_.state;
    versions_.runs = runs;
    mu_.AwaitWithTimeout(
        absl::Condition(&stopped_),
        sources_.await_runs ? kPause : next_state - absl::Now());
    if (stopped_) return;
  }
}

}  // namespace miniray
