#include "runtime/base/net.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/tcp_bind.h"

namespace miniray {
namespace {

constexpr char kBlanks[] = " \t\r\n\v\f";

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("'", address,
                   "' is not an address; write HOST:PORT, e.g. "
                   "127.0.0.1:6380 or [::1]:6380"));
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return bad;
  absl::string_view host = address.substr(0, colon);
  const absl::string_view port = address.substr(colon + 1);
  // SimpleAtoi would also take blanks and a sign.
  if (host.find_first_of(kBlanks) != absl::string_view::npos || port.empty() ||
      !absl::c_all_of(port, absl::ascii_isdigit)) {
    return bad;
  }
  if (host.front() == '[') {
    if (host.back() != ']' || host.size() < 3) return bad;
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != absl::string_view::npos) {
    return bad;
  }
  HostPort result{std::string(host), 0};
  if (!absl::SimpleAtoi(port, &result.port) || result.port < 1 ||
      result.port > 65535) {
    return bad;
  }
  return result;
}

std::string JoinHostPort(absl::string_view host, int port) {
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

bool IsLoopback(absl::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  // inet_pton would not see what follows a zero byte.
  if (absl::StrContains(host, '\0')) return false;
  in_addr v4;
  return inet_pton(AF_INET, std::string(host).c_str(), &v4) == 1 &&
         (ntohl(v4.s_addr) >> 24) == 127;
}

absl::StatusOr<std::string> LocalAddressTowards(const HostPort& peer) {
  // Also where there is no /etc/hosts, and never ::1: heads listen on
  // 127.0.0.1.
  if (peer.host == "localhost") return std::string("127.0.0.1");
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(
      peer.host.c_str(), absl::StrCat(peer.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot resolve '", peer.host,
                                               "': ", gai_strerror(error)));
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found,
                                                           &freeaddrinfo);
  for (addrinfo* info = found; info != nullptr; info = info->ai_next) {
    ScopedFd fd(socket(info->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd.valid()) continue;
    if (connect(fd.get(), info->ai_addr, info->ai_addrlen) != 0) continue;
    sockaddr_storage local;
    socklen_t size = sizeof(local);
    if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0)
      continue;
    char text[INET6_ADDRSTRLEN];
    if (getnameinfo(reinterpret_cast<sockaddr*>(&local), size, text,
                    sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      return std::string(text);
    }
  }
  return absl::UnavailableError(
      absl::StrCat("no route to '", peer.host, "' from this machine"));
}

absl::StatusOr<int> FreePort(const std::string& host) {
  const BoundSocket bound = BindTcp(host, 0);
  if (bound.error == 0) return bound.port;
  return absl::UnavailableError(absl::StrCat(
      "cannot listen on ", host, ": it is not an address of this machine"));
}

bool RefusesConnections(const HostPort& peer, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(peer.host.c_str(), absl::StrCat(peer.port).c_str(), &hints,
                  &found) != 0) {
    return false;
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found,
                                                           &freeaddrinfo);
  for (addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const ScopedFd fd(
        socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return false;
    int error = 0;
    if (connect(fd.get(), info->ai_addr, info->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
      pollfd wait = {fd.get(), POLLOUT, 0};
      const absl::Duration left = deadline - absl::Now();
      if (poll(&wait, 1,
               static_cast<int>(std::max<int64_t>(
                   0, absl::ToInt64Milliseconds(left)))) != 1) {
        return false;
      }
      socklen_t size = sizeof(error);
      if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        return false;
      }
    }
    if (error != ECONNREFUSED) return false;
  }
  return true;
}

std::string Hostname() {
  char buffer[256] = {};
  if (gethostname(buffer, sizeof(buffer) - 1) != 0) return "unknown";
  return buffer;
}

}  // namespace miniray
