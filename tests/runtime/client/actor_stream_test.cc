// gRPC aborts the process if its last channel dies inside one of its callbacks.
// This test has no channels but those of its streams.

#include "runtime/client/actor_stream.h"

#include <atomic>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/loopback_port.h"

namespace miniray {
namespace internal {
namespace {

// Counts the streams that are not over.
class StreamCounter : public ActorStreamUser {
 public:
  void OnWritable(ActorStream*) override {}
  void OnFrame(ActorStream*, const absl::Cord&) override {}
  void OnStreamEnded(ActorStream*, const absl::Status& status) override {
    if (status.ok()) ++ok;
    --open;
  }
  std::atomic<int> open = 0;
  std::atomic<int> ok = 0;
};

TEST(ActorStreamTest, TheLastChannelDiesInPeace) {
  // Each takes a second: so long gRPC takes to end its threads.
  constexpr int kRounds = 10, kStreams = 8;
  // Takes connections and says nothing, as a stopped process does.
  const LoopbackPort port;
  const std::string target = port.address();

  auto user = std::make_shared<StreamCounter>();
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kStreams; ++i) {
      grpc::ChannelArguments args;
      args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20 + (round + i) % 20);
      ++user->open;
      GrpcActorStream::Start(
          user,
          grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                    args),
          "", {})
          ->Write(absl::Cord("frame"), /*at_once=*/true);
    }
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (user->open > 0 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    ASSERT_EQ(user->open, 0);
  }
  EXPECT_EQ(user->ok, 0);
}

}  // namespace
}  // namespace internal
}  // namespace miniray
