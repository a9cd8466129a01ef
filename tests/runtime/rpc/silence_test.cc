// gRPC's connections in a process that takes 2 s of silence.

#include "runtime/base/silence.h"

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/tcp_proxy.h"

namespace miniray {
namespace {

TEST(ChannelSilenceTest, IsTakenForAsLongAsTheVariableSays) {
  setenv(kSilenceTimeoutVariable, "2s", /*replace=*/1);
  grpc::ServerBuilder builder;
  ConfigureServer(&builder);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  grpc::CallbackGenericService service;
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const std::string address = "127.0.0.1:" + std::to_string(port);
  TcpProxy proxy(address);
  const auto cut_off = MakeChannel(proxy.address());
  const auto direct = MakeChannel(address);
  const auto in = [](absl::Duration time) {
    return absl::ToChronoTime(absl::Now() + time);
  };
  ASSERT_TRUE(cut_off->WaitForConnected(in(absl::Seconds(30))));
  ASSERT_TRUE(direct->WaitForConnected(in(absl::Seconds(30))));
  proxy.Hold(true);
  EXPECT_TRUE(
      cut_off->WaitForStateChange(GRPC_CHANNEL_READY, in(absl::Seconds(12))));
  // A ping a second is not too much for a server. Not a condition: nothing
  // happens.
  EXPECT_FALSE(
      direct->WaitForStateChange(GRPC_CHANNEL_READY, in(absl::Seconds(6))));
  proxy.Hold(false);
  server->Shutdown();
}

}  // namespace
}  // namespace miniray
