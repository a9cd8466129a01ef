// The listening socket of a gRPC server. gRPC 1.51 has one itself, but accepts
// nothing any more after files have run out for a moment.

#ifndef MINIRAY_RUNTIME_RPC_GRPC_LISTENER_H_
#define MINIRAY_RUNTIME_RPC_GRPC_LISTENER_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "grpcpp/server_builder.h"
#include "runtime/base/files.h"

namespace miniray {

// Not thread-safe.
class GrpcListener {
 public:
  // Listens at the IP address `host`, 0.0.0.0 and :: at all of IPv4 and IPv6,
  // and at `port`, 0: one that is free. Errors: UNAVAILABLE, the port is in
  // use. INVALID_ARGUMENT, `host` is not an address of this machine.
  // PERMISSION_DENIED. Others: those of the system.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Start(
      const std::string& host, int port);

  // Accepts no more. Before its server shuts down.
  ~GrpcListener();
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  int port() const { return port_; }

  // The server will have its connections from here, with ServerCredentials().
  // Once.
  void AddTo(grpc::ServerBuilder* builder);

  // Lets them in, from a thread of its own; before, they wait. Where files have
  // run out, they wait too, and the log says so. Once, after the server was
  // started.
  void Accept();

 private:
  GrpcListener(ScopedFd fd, ScopedFd wakeup, int port);
  void Run();

  const ScopedFd fd_;
  const ScopedFd wakeup_;
  const int port_;
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_GRPC_LISTENER_H_
