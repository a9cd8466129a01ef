#include "runtime/link/tcp_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/net.h"
#include "runtime/base/silence.h"

namespace miniray {
namespace internal {
namespace {

// So long what was sent to a peer may stay without an acknowledgement, as for
// gRPC's connections (ConfigureServer); two minutes by default.
int UserTimeoutMs() {
  return static_cast<int>(absl::ToInt64Milliseconds(6 * SilenceTimeout()));
}

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// False: `host` is no IP address.
bool Fill(const std::string& host, int port, SocketAddress* address) {
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address->storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address->storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    address->size = sizeof(*v4);
    return true;
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    address->size = sizeof(*v6);
    return true;
  }
  return false;
}

bool IsWildcard(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&address.storage)
               ->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(
      &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr);
}

// 0: it has no port.
int PortOf(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return ntohs(
        reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
  }
  if (address.storage.ss_family == AF_INET6) {
    return ntohs(
        reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  }
  return 0;
}

ScopedFd NewSocket(const SocketAddress& address) {
  return ScopedFd(socket(address.storage.ss_family,
                         SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void SetOption(int fd, int level, int name, int value) {
  // Each only makes a connection better.
  if (setsockopt(fd, level, name, &value, sizeof(value)) != 0) return;
}

}  // namespace

absl::StatusOr<TcpListener> ListenTcp(const std::string& host) {
  SocketAddress address;
  if (!Fill(host, 0, &address) || IsWildcard(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat(host, " is not the IP address of one interface"));
  }
  const std::string what = absl::StrCat("listen on ", host);
  TcpListener listener;
  listener.fd = NewSocket(address);
  const int fd = listener.fd.get();
  if (!listener.fd.valid() || bind(fd, address.get(), address.size) != 0 ||
      listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, address.get(), &address.size) != 0) {
    return ErrnoStatus(errno, what);
  }
  listener.port = PortOf(address);
  return listener;
}

ScopedFd DialTcp(const std::string& address) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  SocketAddress to;
  if (!parsed.ok() || !Fill(parsed->host, parsed->port, &to)) return ScopedFd();
  ScopedFd fd = NewSocket(to);
  if (!fd.valid() || !IsSpare(fd.get())) return ScopedFd();
  SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (connect(fd.get(), to.get(), to.size) != 0 && errno != EINPROGRESS) {
    return ScopedFd();
  }
  return fd;
}

void PrepareAccepted(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, UserTimeoutMs());
}

std::string PeerName(int fd) {
  SocketAddress peer;
  peer.size = sizeof(peer.storage);
  if (getpeername(fd, peer.get(), &peer.size) != 0) return "unknown";
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&peer.storage)->sin_addr,
              text, sizeof(text));
    return absl::StrCat("ipv4:", JoinHostPort(text, PortOf(peer)));
  }
  if (peer.storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6,
              &reinterpret_cast<sockaddr_in6*>(&peer.storage)->sin6_addr, text,
              sizeof(text));
    return absl::StrCat("ipv6:", JoinHostPort(text, PortOf(peer)));
  }
  return "unknown";
}

bool IsSpare(int fd) {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         static_cast<rlim_t>(fd) < limit.rlim_cur / 2;
}

}  // namespace internal
}  // namespace miniray
