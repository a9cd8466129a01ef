// Links over TCP on which nothing comes any more, because the actor's process
// stands still or the network carries nothing: they are given up after some
// 20 s, and no call is lost or runs twice.

#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "runtime/client/actor_connection.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/client/fake_head.h"
#include "tests/runtime/tcp_proxy.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr int kCalls = 50;

class Counter {
 public:
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<>, &Counter::Add);

// An actor, and a connection to it over TCP.
class SilentLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    auto counter = driver_.CreateActor<Counter>({.max_restarts = 0});
    ASSERT_THAT(counter, IsOk());
    ASSERT_THAT(counter->WaitReady(kLong), IsOk());
    identity_ = counter->identity();
    info_ = cluster_.Info(*counter);
  }
  void TearDown() override {
    if (connection_ != nullptr) {
      connection_->Close(absl::CancelledError("the test ends"));
    }
  }

  void Connect(const std::string& address) {
    v1::ActorInfo info = info_;
    info.set_address(address);
    internal::ActorConnection::Options options;
    options.transport = internal::Transport::kTcp;
    options.reconnect_timeout = absl::Seconds(60);
    options.channels = std::make_shared<internal::ChannelPool>(
        [made = channels_made_](const std::string& to) {
          ++*made;
          return MakeChannel(to);
        });
    options.lookup = std::make_shared<internal::FakeHead>(info)->lookup();
    connection_ = std::make_shared<internal::ActorConnection>(
        identity_, std::move(options));
  }

  void Call(int count) {
    for (int i = 0; i < count; ++i) {
      internal::CallRequest request;
      request.method = "Add";
      request.args = {*EncodeValue(int64_t{1})};
      calls_.push_back(connection_->Call(std::move(request)));
    }
  }

  // All calls have run, once and in order.
  void ExpectAllAnswered() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      const auto result = calls_[i]->Wait(kLong);
      ASSERT_THAT(result, IsOk()) << i;
      int64_t value = 0;
      ASSERT_THAT(DecodeValue(*result, &value), IsOk());
      ASSERT_EQ(value, static_cast<int64_t>(i) + 1);
    }
  }

  TestCluster cluster_;
  Cluster driver_ = cluster_.Connect();
  internal::ActorIdentity identity_;
  v1::ActorInfo info_;
  const std::shared_ptr<std::atomic<int>> channels_made_ =
      std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<internal::ActorConnection> connection_;
  std::vector<std::shared_ptr<internal::CallState>> calls_;
};

TEST_F(SilentLinkTest, AStoppedActorLosesNothing) {
  Connect(info_.address());
  Call(1);
  ASSERT_THAT(calls_[0]->Wait(kLong), IsOk());
  Call(kCalls);
  ASSERT_TRUE(StopProcess(info_.pid()));
  const absl::Time stopped = absl::Now();
  Call(kCalls);
  // The link is given up, the next one gets no answer, and gRPC is tried.
  const bool given_up =
      Eventually([this] { return *channels_made_ > 0; }, kLong);
  Call(kCalls);
  kill(static_cast<pid_t>(info_.pid()), SIGCONT);
  EXPECT_TRUE(given_up);
  EXPECT_GT(absl::Now() - stopped, absl::Seconds(15));
  ExpectAllAnswered();
}

TEST_F(SilentLinkTest, ANetworkThatCarriesNothingLosesNothing) {
  TcpProxy proxy(info_.address());
  Connect(proxy.address());
  Call(1);
  ASSERT_THAT(calls_[0]->Wait(kLong), IsOk());
  EXPECT_EQ(proxy.connections(), 1);
  Call(kCalls);
  proxy.Hold(true);
  Call(kCalls);
  EXPECT_TRUE(Eventually([&] { return proxy.connections() > 1; }, kLong));
  Call(kCalls);
  proxy.Hold(false);
  ExpectAllAnswered();
  EXPECT_GE(proxy.connections(), 2);
  connection_->Close(absl::CancelledError("the test ends"));
}

// A stopped process is waited for; one that is killed is not.
TEST_F(SilentLinkTest, AKilledActorIsNoticedAtOnce) {
  Connect(info_.address());
  Call(1);
  ASSERT_THAT(calls_[0]->Wait(kLong), IsOk());
  ASSERT_TRUE(StopProcess(info_.pid()));
  Call(kCalls);
  const absl::Time killed = absl::Now();
  kill(static_cast<pid_t>(info_.pid()), SIGKILL);
  // The link is over, and nobody listens any more: gRPC's turn has come.
  EXPECT_TRUE(Eventually([this] { return *channels_made_ > 0; }, kLong));
  EXPECT_LT(absl::Now() - killed, absl::Seconds(10));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
