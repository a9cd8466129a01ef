#include "runtime/head/listen_failure.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"

namespace miniray {
namespace {

// 0: it can be.
int ErrorOfBinding(const std::string& host, int port) {
  sockaddr_storage address = {};
  socklen_t size = 0;
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
    return EADDRNOTAVAIL;
  }
  const ScopedFd fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  // What a connection that has ended leaves for a while is not in the way.
  const int yes = 1;
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0
             ? 0
             : errno;
}

}  // namespace

absl::Status WhyNotListening(const std::string& host, int port) {
  const std::string what =
      absl::StrCat("cannot listen on ", JoinHostPort(host, port));
  const int error = ErrorOfBinding(host, port);
  switch (error) {
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": ", host, " is not an IP address of this machine"));
    case EADDRINUSE:
      return absl::UnavailableError(absl::StrCat(what, ": the port is in use"));
    case EACCES:
      return absl::PermissionDeniedError(
          absl::StrCat(what, ": this user may not listen on that port"));
    case 0:
      return absl::UnavailableError(
          absl::StrCat(what, ": the port was in use a moment ago"));
    default:
      return ErrnoStatus(error, what);
  }
}

}  // namespace miniray
