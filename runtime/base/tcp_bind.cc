#include "runtime/base/tcp_bind.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

namespace miniray {

BoundSocket BindTcp(const std::string& host, int port) {
  BoundSocket bound;
  sockaddr_storage address = {};
  socklen_t size = 0;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    address.ss_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    size = sizeof(*v4);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    address.ss_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    size = sizeof(*v6);
  } else {
    bound.error = EADDRNOTAVAIL;
    return bound;
  }
  bound.fd = ScopedFd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Where any port will do, one that is not free in every sense is not taken.
  const int reuse = port == 0 ? 0 : 1;
  const int v6_only = 0;
  if (!bound.fd.valid() ||
      setsockopt(bound.fd.get(), SOL_SOCKET, SO_REUSEADDR, &reuse,
                 sizeof(reuse)) != 0 ||
      (address.ss_family == AF_INET6 &&
       setsockopt(bound.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only,
                  sizeof(v6_only)) != 0) ||
      bind(bound.fd.get(), generic, size) != 0 ||
      getsockname(bound.fd.get(), generic, &size) != 0) {
    bound.error = errno;
    bound.fd.reset();
    return bound;
  }
  bound.port =
      ntohs(address.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
  return bound;
}

}  // namespace miniray
