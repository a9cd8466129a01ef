#include "tools/bench/peers/grpc_server.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/grpcpp.h"
#include "runtime/base/status_macros.h"

namespace miniray::bench {

int ServeGrpc(const std::vector<grpc::Service*>& services) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  for (grpc::Service* service : services) builder.RegisterService(service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  const int code =
      ServeCommands([&](const std::string&) { return absl::StrCat(port); });
  server->Shutdown(std::chrono::system_clock::now());
  return code;
}

absl::StatusOr<GrpcPeer> StartGrpcPeer(const std::string& role,
                                       int connections) {
  GrpcPeer peer;
  MR_ASSIGN_OR_RETURN(peer.child, Child::Start(role, {}));
  MR_ASSIGN_OR_RETURN(const std::string port, peer.child->Ask("port"));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  for (int i = 0; i < connections; ++i) {
    peer.channels.push_back(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(),
        arguments));
    if (!peer.channels.back()->WaitForConnected(
            std::chrono::system_clock::now() + std::chrono::seconds(10))) {
      return absl::UnavailableError("the raw gRPC server does not answer");
    }
  }
  return peer;
}

}  // namespace miniray::bench
