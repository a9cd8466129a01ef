// Why a port cannot be listened on: gRPC does not say.

#ifndef MINIRAY_RUNTIME_HEAD_LISTEN_FAILURE_H_
#define MINIRAY_RUNTIME_HEAD_LISTEN_FAILURE_H_

#include <string>

#include "absl/status/status.h"

namespace miniray {

// Tries to bind a socket to the IP address `host` and says what is in the way,
// after it was seen that something is. UNAVAILABLE, the port is in use.
// INVALID_ARGUMENT, `host` is not an address of this machine.
// PERMISSION_DENIED.
absl::Status WhyNotListening(const std::string& host, int port);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_LISTEN_FAILURE_H_
