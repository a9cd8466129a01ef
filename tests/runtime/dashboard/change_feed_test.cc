#include "runtime/dashboard/change_feed.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

// A cluster and its runs, which change when they are told to.
class Sources {
 public:
  ChangeFeed::Sources Get(bool with_runs = true) {
    ChangeFeed::Sources sources;
    sources.state_fingerprint = [this] {
      ++looks;
      return state.load();
    };
    if (!with_runs) return sources;
    sources.await_runs = [this](int64_t version, absl::Duration timeout) {
      absl::MutexLock lock(&mu_);
      const auto news = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return runs_ != version;
      };
      mu_.AwaitWithTimeout(absl::Condition(&news), timeout);
      return runs_;
    };
    return sources;
  }
  void SetRuns(int64_t version) {
    absl::MutexLock lock(&mu_);
    runs_ = version;
  }

  std::atomic<uint64_t> state = 1;
  std::atomic<int> looks = 0;

 private:
  absl::Mutex mu_;
  int64_t runs_ ABSL_GUARDED_BY(mu_) = 5;
};

// Waits until `is_so` holds of the versions, and returns them.
template <class Condition>
ChangeFeed::Versions AwaitThat(ChangeFeed::Watch* watch, Condition is_so) {
  const absl::Time deadline = absl::Now() + kLong;
  ChangeFeed::Versions now = {-1, -1};
  do {
    now = watch->Await(now, absl::Seconds(1));
  } while (!is_so(now) && absl::Now() < deadline);
  EXPECT_TRUE(is_so(now));
  return now;
}

TEST(ChangeFeedTest, ChangesAreTold) {
  Sources sources;
  ChangeFeed feed(sources.Get());
  ChangeFeed::Watch watch(&feed);
  const ChangeFeed::Versions first = AwaitThat(
      &watch, [](const auto& now) { return now.state > 0 && now.runs == 5; });
  sources.state = 2;
  const ChangeFeed::Versions second = AwaitThat(
      &watch, [&](const auto& now) { return now.state != first.state; });
  EXPECT_EQ(second.runs, 5);
  sources.SetRuns(3);  // After a restart of the head it may be less.
  const ChangeFeed::Versions third =
      AwaitThat(&watch, [](const auto& now) { return now.runs == 3; });
  EXPECT_EQ(third.state, second.state);
}

TEST(ChangeFeedTest, WithoutRuns) {
  Sources sources;
  ChangeFeed feed(sources.Get(/*with_runs=*/false));
  ChangeFeed::Watch watch(&feed);
  const ChangeFeed::Versions first =
      AwaitThat(&watch, [](const auto& now) { return now.state > 0; });
  EXPECT_EQ(first.runs, 0);
  sources.state = 2;
  AwaitThat(&watch, [&](const auto& now) { return now.state != first.state; });
}

TEST(ChangeFeedTest, NothingNewIsWaitedForNoLonger) {
  Sources sources;
  ChangeFeed feed(sources.Get());
  ChangeFeed::Watch watch(&feed);
  const ChangeFeed::Versions now = AwaitThat(
      &watch, [](const auto& now) { return now.state > 0 && now.runs == 5; });
  EXPECT_EQ(watch.Await(now, absl::Milliseconds(20)), now);
}

// It costs a head without visitors nothing.
TEST(ChangeFeedTest, NobodyWatchesNothingIsLookedAt) {
  Sources sources;
  ChangeFeed feed(sources.Get());
  std::optional<ChangeFeed::Watch> watch(std::in_place, &feed);
  AwaitThat(&*watch, [](const auto& now) { return now.state > 0; });
  watch.reset();
  const int looks = sources.looks;
  // Nothing can be awaited where nothing happens: two periods of rest. The look
  // that was under way when the last one left may still end.
  absl::SleepFor(absl::Milliseconds(1200));
  EXPECT_LE(sources.looks, looks + 1);
}

TEST(ChangeFeedTest, AStopWakesWhoWaits) {
  Sources sources;
  ChangeFeed feed(sources.Get());
  ChangeFeed::Watch watch(&feed);
  const ChangeFeed::Versions now = AwaitThat(
      &watch, [](const auto& now) { return now.state > 0 && now.runs == 5; });
  EXPECT_FALSE(feed.stopped());
  absl::Notification woke;
  std::thread waiting([&] {
    watch.Await(now, absl::Hours(1));
    woke.Notify();
  });
  feed.Stop();
  EXPECT_TRUE(woke.WaitForNotificationWithTimeout(kLong));
  waiting.join();
  EXPECT_TRUE(feed.stopped());
}

}  // namespace
}  // namespace miniray
