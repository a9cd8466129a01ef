// Actors whose process is stopped until gRPC gives their connections up, and
// until it fails to make new ones, over and over: no call may be lost.

#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "runtime/client/actor_connection.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/client/fake_head.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

constexpr absl::Duration kLong = absl::Seconds(40);

class Counter {
 public:
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<>, &Counter::Add);

// As MakeChannel's, but quick to give up.
std::shared_ptr<grpc::Channel> QuickChannel(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 80);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   args);
}

TEST(StoppedActorTest, ConnectionsThatAreGivenUpComeBackAndLoseNothing) {
  constexpr int kActors = 3, kRounds = 12, kCalls = 50;
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto channels = std::make_shared<internal::ChannelPool>(&QuickChannel);
  std::vector<pid_t> pids;
  std::vector<std::string> addresses;
  std::vector<std::shared_ptr<internal::FakeHead>> heads;
  std::vector<std::shared_ptr<internal::ActorConnection>> connections;
  for (int i = 0; i < kActors; ++i) {
    auto counter = driver.CreateActor<Counter>({});
    ASSERT_THAT(counter, IsOk());
    ASSERT_THAT(counter->WaitReady(kLong), IsOk());
    const v1::ActorInfo info = cluster.Info(*counter);
    pids.push_back(static_cast<pid_t>(info.pid()));
    addresses.push_back(info.address());
    internal::ActorConnection::Options options;
    options.channels = channels;
    options.transport = internal::Transport::kGrpc;  // It is about channels.
    heads.push_back(std::make_shared<internal::FakeHead>(info));
    options.lookup = heads.back()->lookup();
    connections.push_back(std::make_shared<internal::ActorConnection>(
        counter->identity(), std::move(options)));
  }
  auto add = [&](int i) {
    internal::CallRequest request;
    request.method = "Add";
    request.args = {*EncodeValue(int64_t{1})};
    return connections[i]->Call(std::move(request));
  };
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::shared_ptr<internal::CallState>> calls;
    std::vector<int> lookups;
    for (const auto& head : heads) lookups.push_back(head->lookups());
    for (int i = 0; i < kActors; ++i) {
      for (int k = 0; k < kCalls; ++k) calls.push_back(add(i));
      ASSERT_TRUE(StopProcess(pids[i]));
      for (int k = 0; k < kCalls; ++k) calls.push_back(add(i));
    }
    // In odd rounds, attempts to connect have failed, too: the head is asked
    // after such.
    for (size_t i = 0; i < heads.size(); ++i) {
      ASSERT_TRUE(Eventually(
          [&] {
            const grpc_connectivity_state state =
                channels->Get(addresses[i])->GetState(/*try_to_connect=*/false);
            return round % 2 == 0 ? state != GRPC_CHANNEL_READY
                                  : heads[i]->lookups() > lookups[i];
          },
          kLong))
          << "round " << round << " actor " << i << ", its channel is in state "
          << channels->Get(addresses[i])->GetState(/*try_to_connect=*/false)
          << ", and a session is "
          << (connections[i]->ConnectedInfo(0).has_value() ? "" : "not ")
          << "there";
    }
    for (pid_t pid : pids) kill(pid, SIGCONT);
    for (const auto& call : calls) ASSERT_THAT(call->Wait(kLong), IsOk());
  }
  for (int i = 0; i < kActors; ++i) {
    const auto result = add(i)->Wait(kLong);
    ASSERT_THAT(result, IsOk());
    int64_t value = 0;
    ASSERT_THAT(DecodeValue(*result, &value), IsOk());
    EXPECT_EQ(value, 2 * kRounds * kCalls + 1);
    connections[i]->Close(absl::CancelledError("the test ends"));
  }
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
