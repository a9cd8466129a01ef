// TCP sockets of links. A process serves links and gRPC at one port: the first
// bytes of a connection tell which it is.

#ifndef MINIRAY_RUNTIME_LINK_TCP_SOCKET_H_
#define MINIRAY_RUNTIME_LINK_TCP_SOCKET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"

namespace miniray {
namespace internal {

// What a caller sends first, before any frame. gRPC closes a connection that
// begins so, and no connection of gRPC does.
inline constexpr absl::string_view kLinkPreface = "MiniRay1";

struct TcpListener {
  ScopedFd fd;
  int port = 0;
};

// Listens at a free port of `host`; the socket does not block. Errors:
// INVALID_ARGUMENT, `host` is not the IP address of one interface. Others: it
// cannot be listened at.
absl::StatusOr<TcpListener> ListenTcp(const std::string& host);

// Begins to connect to `address` (IP:PORT), without blocking: it may come to
// nothing later. Not valid: it cannot begin, the address is a name that would
// have to be looked up, or files are about to run out.
ScopedFd DialTcp(const std::string& address);

// For a connection that was accepted: what is written leaves at once, and it
// breaks when the other end has taken nothing of it for two minutes.
void PrepareAccepted(int fd);

// "ipv4:192.0.2.1:4711" or "ipv6:[2001:db8::1]:4711", as gRPC names them: the
// other end.
std::string PeerName(int fd);

// Whether files are left for what else the process does once it has this one:
// each link has a socket of its own, where all gRPC streams between two
// processes share one.
bool IsSpare(int fd);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_LINK_TCP_SOCKET_H_
