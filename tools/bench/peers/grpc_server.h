// What the servers of the raw gRPC peers share.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_GRPC_SERVER_H_
#define MINIRAY_TOOLS_BENCH_PEERS_GRPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "tools/bench/child.h"

namespace miniray::bench {

// Serves on a free port of 127.0.0.1 until its input ends; the answer to any
// command is the port. Returns the exit code.
int ServeGrpc(const std::vector<grpc::Service*>& services);

// Channels over TCP, with a connection of its own each and no limit on
// messages, to the server in a child with this role.
struct GrpcPeer {
  std::unique_ptr<Child> child;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  const std::shared_ptr<grpc::Channel>& channel() const { return channels[0]; }
};
absl::StatusOr<GrpcPeer> StartGrpcPeer(const std::string& role,
                                       int connections = 1);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_GRPC_SERVER_H_
