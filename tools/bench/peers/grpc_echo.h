// The raw peers for small calls: an echo through generated stubs, unary or on a
// stream, over TCP, to a server in a process of its own.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_GRPC_ECHO_H_
#define MINIRAY_TOOLS_BENCH_PEERS_GRPC_ECHO_H_

#include <memory>

#include "absl/status/statusor.h"

namespace miniray::bench {

// The role of the server's process, and what it runs.
inline constexpr char kGrpcEchoRole[] = "grpc-echo";
int ServeGrpcEcho();

class GrpcEcho {
 public:
  static absl::StatusOr<std::unique_ptr<GrpcEcho>> Start();
  virtual ~GrpcEcho() = default;

  // Microseconds of one call there and back, the median of `calls` calls that
  // are made one at a time.
  virtual absl::StatusOr<double> RoundTrip(int calls) = 0;
  // The same for messages on a stream that stays open: each is written by the
  // thread that then waits for its echo. What an actor's call over gRPC cannot
  // be faster than.
  virtual absl::StatusOr<double> StreamRoundTrip(int messages) = 0;
  // Calls a second through the callback API with `in_flight` calls that have
  // no answer.
  virtual absl::StatusOr<double> Flood(int calls, int in_flight) = 0;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_GRPC_ECHO_H_
