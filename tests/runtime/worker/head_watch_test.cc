// For how long a head has not been heard of, and what the watch does then.

#include "runtime/worker/head_watch.h"

#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/loopback_port.h"

namespace miniray {
namespace {

using ::testing::StartsWith;

constexpr absl::Duration kLease = absl::Milliseconds(100);
constexpr absl::Duration kPatience = absl::Seconds(15);

const grpc::Status& Silence() {
  static const auto* const status =
      new grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no answer");
  return *status;
}

HostPort AddressOf(const LoopbackPort& port) {
  return {"127.0.0.1", port.number()};
}

// A watch that is told of a silent head until it says that it is cut off.
class Watched {
 public:
  explicit Watched(HeadWatch::Options options)
      : watch_(std::move(options), [this](const std::string& why) {
          if (cut_off_.HasBeenNotified()) return;
          why_ = why;
          cut_off_.Notify();
        }) {}

  // Returns how long that took; infinite: longer than `limit`.
  absl::Duration BeSilent(absl::Duration limit) {
    const absl::Time begin = absl::Now();
    while (absl::Now() - begin < limit) {
      watch_.OnRenewal(Silence(), kLease);
      if (cut_off_.WaitForNotificationWithTimeout(kLease / 10)) {
        return absl::Now() - begin;
      }
    }
    return absl::InfiniteDuration();
  }
  HeadWatch& watch() { return watch_; }
  const std::string& why() const { return why_; }

 private:
  absl::Notification cut_off_;
  std::string why_;
  HeadWatch watch_;  // Ends first.
};

TEST(HeadWatchTest, ThreeLeasesOfSilenceCutTheNodeOff) {
  const LoopbackPort port;
  Watched watched({.head = AddressOf(port)});
  const absl::Duration took = watched.BeSilent(kPatience);
  // What lies between the making of the watch and its first news counts.
  EXPECT_GE(took, 2.5 * kLease);
  EXPECT_LT(took, kPatience);
  EXPECT_THAT(watched.why(), StartsWith("no contact with the head for "));
}

TEST(HeadWatchTest, TheSilenceIsAnOption) {
  const LoopbackPort port;
  Watched watched({.head = AddressOf(port), .fence_after = 10 * kLease});
  EXPECT_GE(watched.BeSilent(kPatience), 9 * kLease);
}

TEST(HeadWatchTest, AHeadThatIsGoneIsWaitedForLonger) {
  const LoopbackPort port(LoopbackPort::kRefuses);
  Watched watched({.head = AddressOf(port), .headless_timeout = 12 * kLease});
  const absl::Duration took = watched.BeSilent(kPatience);
  EXPECT_GE(took, 10 * kLease);
  EXPECT_LT(took, kPatience);
}

TEST(HeadWatchTest, AWordOfTheHeadEndsTheSilence) {
  const LoopbackPort port;
  Watched watched({.head = AddressOf(port), .fence_after = 10 * kLease});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(watched.BeSilent(6 * kLease), absl::InfiniteDuration());
    // Also one that does not know the node any more was heard.
    watched.watch().OnRenewal(
        i == 1 ? grpc::Status(grpc::StatusCode::NOT_FOUND, "who?")
               : grpc::Status::OK,
        kLease);
  }
}

// A time in which this process stood still is no silence of the head.
TEST(HeadWatchTest, AStepCountsAsALeaseAtMost) {
  const LoopbackPort port;
  absl::Notification cut_off;
  HeadWatch watch({.head = AddressOf(port), .fence_after = 3 * kLease},
                  [&](const std::string&) { cut_off.Notify(); });
  watch.OnRenewal(grpc::Status::OK, kLease);
  // Not a condition: this is the time that passes.
  absl::SleepFor(8 * kLease);
  watch.OnRenewal(Silence(), kLease);
  EXPECT_FALSE(cut_off.WaitForNotificationWithTimeout(4 * kLease));
}

// The thread that renews the lease must not wait for what follows from it.
TEST(HeadWatchTest, NewsAreTakenWhileWhatRunsHereIsEnded) {
  const LoopbackPort port;
  absl::Notification ending, ended;
  bool in_time = false;
  {
    HeadWatch watch({.head = AddressOf(port), .fence_after = kLease},
                    [&](const std::string&) {
                      if (ending.HasBeenNotified()) return;
                      ending.Notify();
                      in_time = ended.WaitForNotificationWithTimeout(kPatience);
                    });
    const absl::Time deadline = absl::Now() + kPatience;
    while (!ending.WaitForNotificationWithTimeout(kLease / 10) &&
           absl::Now() < deadline) {
      watch.OnRenewal(Silence(), kLease);
    }
    for (int i = 0; i < 1000; ++i) watch.OnRenewal(Silence(), kLease);
    ended.Notify();
  }
  EXPECT_TRUE(in_time);
}

}  // namespace
}  // namespace miniray
