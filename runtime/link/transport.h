// Which ways calls to actors may take.

#ifndef MINIRAY_RUNTIME_LINK_TRANSPORT_H_
#define MINIRAY_RUNTIME_LINK_TRANSPORT_H_

#include "absl/status/statusor.h"

namespace miniray {
namespace internal {

// Each way stands in for those before it.
enum class Transport {
  kAuto,  // Unix sockets inside a machine.
  kTcp,   // Links over TCP.
  kGrpc,  // gRPC's streams.
};

inline constexpr char kTransportVariable[] = "MINIRAY_LOCAL_TRANSPORT";

// The first way that this process may take, as a caller and as an actor:
// "auto", "tcp" or "grpc"; "auto" where the variable is not set. Errors:
// INVALID_ARGUMENT, it says something else.
absl::StatusOr<Transport> TransportFromEnvironment();

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_LINK_TRANSPORT_H_
