// A node whose machine is as busy as can be is not taken for a dead one.

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

constexpr absl::Duration kLease = absl::Seconds(1);
constexpr absl::Duration kWatchTime = absl::Seconds(8);
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr size_t kCopiedBytes = 64 << 20;

// Works in as many threads as it is told, all at the usual priority.
class Burner {
 public:
  ~Burner() { Stop(); }

  // Half of the threads count, half copy memory.
  void Burn(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i] { i % 2 == 0 ? Count() : Copy(); });
    }
  }
  int64_t Echo(int64_t n) { return n; }
  void Stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void Count() {
    while (!stopping_) ++count_;
  }
  void Copy() {
    std::vector<char> from(kCopiedBytes, 1), to(kCopiedBytes);
    while (!stopping_) {
      std::memcpy(to.data(), from.data(), from.size());
      from[0] = static_cast<char>(count_.load());
    }
  }

  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> count_ = 0;
  std::vector<std::thread> threads_;
};
MINIRAY_ACTOR(Burner, Constructor<>, &Burner::Burn, &Burner::Echo,
              &Burner::Stop);

class BusyNodeTest : public testing::Test {
 protected:
  BusyNodeTest()
      : real_({.num_nodes = 1,
               .cpus = 4,
               .head_flags = {absl::StrCat("--lease=",
                                           absl::FormatDuration(kLease))}}),
        driver_(real_.Connect()) {}

  // Two processes with eight threads for each CPU of the machine, and a flood
  // of calls to both.
  void StartLoad() {
    const int threads =
        4 * static_cast<int>(std::thread::hardware_concurrency());
    for (int i = 0; i < 2; ++i) {
      auto burner = driver_.CreateActor<Burner>({});
      ASSERT_THAT(burner, IsOk());
      ASSERT_THAT(burner->Call<&Burner::Burn>(threads).Get(kPatience), IsOk());
      burners_.push_back(*burner);
    }
    for (ActorHandle<Burner>& burner : burners_) {
      callers_.emplace_back([this, &burner] {
        std::deque<ObjectRef<int64_t>> calls;
        for (int64_t i = 0; !load_ends_; ++i) {
          calls.push_back(burner.Call<&Burner::Echo>(i));
          if (calls.size() < 500) continue;
          const auto reply = calls.front().Get(kPatience);
          if (reply.ok()) ++replies_;
          calls.pop_front();
        }
      });
    }
  }
  void EndLoad() {
    load_ends_ = true;
    for (std::thread& caller : callers_) caller.join();
    for (ActorHandle<Burner>& burner : burners_) {
      (void)burner.Call<&Burner::Stop>().Get(kPatience);
    }
  }

  // Whether the head loses no node, nor an actor, for so long.
  bool KeepsItsLease(absl::Duration time) {
    const absl::Time end = absl::Now() + time;
    while (absl::Now() < end) {
      const auto state = driver_.GetState();
      EXPECT_THAT(state, IsOk());
      if (!state.ok()) return false;
      for (const v1::NodeInfo& node : state->nodes()) {
        if (node.state() == v1::NODE_STATE_DEAD) return false;
      }
      for (const v1::ActorInfo& actor : state->actors()) {
        if (actor.state() != v1::ACTOR_STATE_ALIVE) return false;
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    return true;
  }

  RealCluster real_;
  Cluster driver_;
  std::vector<ActorHandle<Burner>> burners_;
  std::vector<std::thread> callers_;
  std::atomic<bool> load_ends_ = false;
  std::atomic<int64_t> replies_ = 0;
};

TEST_F(BusyNodeTest, KeepsAShortLease) {
  ASSERT_NO_FATAL_FAILURE(StartLoad());
  EXPECT_TRUE(KeepsItsLease(kWatchTime));
  EXPECT_GT(replies_, 1000);  // It was no pause.
  EndLoad();
}

// The same where nobody renews the lease: all else goes on.
TEST_F(BusyNodeTest, ADaemonThatStandsStillLosesIt) {
  ASSERT_NO_FATAL_FAILURE(StartLoad());
  real_.node(0).Signal(SIGSTOP);
  EXPECT_FALSE(KeepsItsLease(kWatchTime));
  EndLoad();
  real_.node(0).Signal(SIGCONT);
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
