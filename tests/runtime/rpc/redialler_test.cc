// How often a head that is away is dialled.

#include "runtime/rpc/redialler.h"

#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/base/backoff.h"
#include "runtime/base/files.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/base/loopback_port.h"

namespace miniray {
namespace {

// A port on which every connection is closed at once.
class HangingUp {
 public:
  HangingUp() {
    thread_ = std::thread([this] {
      while (true) {
        const ScopedFd peer(
            accept4(port_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!peer.valid()) return;
        absl::MutexLock lock(&mu_);
        times_.push_back(absl::Now());
      }
    });
  }
  ~HangingUp() {
    shutdown(port_.fd(), SHUT_RDWR);
    thread_.join();
  }
  std::string address() const { return port_.address(); }
  std::vector<absl::Time> times() {
    absl::MutexLock lock(&mu_);
    return times_;
  }

 private:
  LoopbackPort port_;
  absl::Mutex mu_;
  std::vector<absl::Time> times_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

TEST(BackoffTest, PausesGrowToALimitAndAreNeverTheSame) {
  Backoff backoff(absl::Milliseconds(100), absl::Seconds(1));
  const double longest[] = {0.1, 0.2, 0.4, 0.8, 1, 1, 1};
  std::set<absl::Duration> all;
  for (int round = 0; round < 5; ++round) {
    absl::Duration before;
    for (size_t i = 0; i < std::size(longest); ++i) {
      const absl::Duration pause = backoff.Next();
      EXPECT_LE(pause, absl::Seconds(longest[i])) << i;
      EXPECT_GE(pause, 0.75 * absl::Seconds(longest[i])) << i;
      EXPECT_TRUE(i >= 4 || pause > before) << i;
      before = pause;
      all.insert(pause);
    }
    backoff.Reset();
  }
  EXPECT_EQ(all.size(), 5 * std::size(longest));
}

TEST(BackoffTest, TheLimitMayChangeAndBeLessThanTheFirst) {
  Backoff backoff(absl::Milliseconds(100), absl::Seconds(1));
  backoff.SetMax(absl::Milliseconds(20));
  for (int i = 0; i < 3; ++i) EXPECT_LE(backoff.Next(), absl::Milliseconds(20));
}

// Attempts within `time`, of as many who wait.
std::vector<absl::Time> AttemptsOf(int waiting, absl::Duration time,
                                   absl::Duration max_pause) {
  HangingUp head;
  const auto channel = MakeDialledChannel(head.address());
  Redialler redialler(channel.get());
  redialler.SetMaxPause(max_pause);
  const absl::Time end = absl::Now() + time;
  std::vector<std::thread> threads;
  for (int i = 0; i < waiting; ++i) {
    threads.emplace_back([&] { EXPECT_FALSE(redialler.AwaitConnected(end)); });
  }
  for (std::thread& thread : threads) thread.join();
  return head.times();
}

TEST(RediallerTest, TheAttemptsComeEverMoreSeldom) {
  // At 0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.55, 3.55 s or somewhat earlier.
  const auto attempts = AttemptsOf(1, absl::Seconds(4), kMaxRedialPause);
  EXPECT_GE(attempts.size(), 5);
  EXPECT_LE(attempts.size(), 12);
  ASSERT_FALSE(attempts.empty());
  absl::Duration longest;
  for (size_t i = 1; i < attempts.size(); ++i) {
    longest = std::max(longest, attempts[i] - attempts[i - 1]);
  }
  EXPECT_GE(longest, absl::Milliseconds(550));
}

TEST(RediallerTest, ManyWhoWaitDialNoMoreOftenThanOne) {
  EXPECT_LE(AttemptsOf(20, absl::Seconds(4), kMaxRedialPause).size(), 12);
}

TEST(RediallerTest, TheLongestPauseIsAnOption) {
  const auto attempts =
      AttemptsOf(1, absl::Seconds(3), absl::Milliseconds(100));
  EXPECT_GE(attempts.size(), 15);  // 30 to 40, on a machine that is idle.
}

}  // namespace
}  // namespace miniray
