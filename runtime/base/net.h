// Addresses.

#ifndef MINIRAY_RUNTIME_BASE_NET_H_
#define MINIRAY_RUNTIME_BASE_NET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace miniray {

struct HostPort {
  std::string host;
  int port = 0;
};

// Splits "HOST:PORT" or "[IPV6]:PORT". Errors: INVALID_ARGUMENT that shows what
// an address looks like.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// Joins them, with brackets around an IPv6 address.
std::string JoinHostPort(absl::string_view host, int port);

// True for 127.0.0.0/8, ::1 and "localhost".
bool IsLoopback(absl::string_view host);

// Returns the IP address of this machine from which `host` is reached; nothing
// is sent. Errors: UNAVAILABLE, unknown host or no route.
absl::StatusOr<std::string> LocalAddressTowards(const HostPort& peer);

// Returns a TCP port on the IP address `host` that nobody uses now. Errors:
// UNAVAILABLE, `host` is no address of this machine.
absl::StatusOr<int> FreePort(const std::string& host);

// True if nobody listens there: each address of it refuses a connection. False
// where one accepts, or says nothing for `timeout`.
bool RefusesConnections(const HostPort& peer, absl::Duration timeout);

std::string Hostname();

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_NET_H_
