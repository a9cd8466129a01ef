#include "runtime/link/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/link/tcp_socket.h"

namespace miniray {
namespace internal {
namespace {

// Stands for every user that has no name in this user namespace.
constexpr uid_t kOverflowUid = 65534;

// False: the name is too long.
bool Fill(const std::string& name, sockaddr_un* address, socklen_t* size) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (name.size() > sizeof(address->sun_path)) return false;
  std::memcpy(address->sun_path, name.data(), name.size());
  address->sun_path[0] = '\0';
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return true;
}

ScopedFd NewSocket() {
  return ScopedFd(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

std::string UnixName(const std::string& address) {
  return absl::StrCat("@miniray-", address);
}

absl::StatusOr<ScopedFd> ListenUnix(const std::string& address) {
  sockaddr_un name;
  socklen_t size = 0;
  ScopedFd fd = NewSocket();
  const std::string what =
      absl::StrCat("listen at the unix socket ", UnixName(address));
  if (!fd.valid()) return ErrnoStatus(errno, what);
  if (!Fill(UnixName(address), &name, &size)) {
    return ErrnoStatus(ENAMETOOLONG, what);
  }
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&name), size) != 0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError(
          absl::StrCat(what, ": another process has taken the name"));
    }
    return ErrnoStatus(errno, what);
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return ErrnoStatus(errno, what);
  return fd;
}

ScopedFd DialUnix(const std::string& address) {
  sockaddr_un name;
  socklen_t size = 0;
  ScopedFd fd = NewSocket();
  if (!fd.valid() || !IsSpare(fd.get()) ||
      !Fill(UnixName(address), &name, &size) ||
      connect(fd.get(), reinterpret_cast<sockaddr*>(&name), size) != 0 ||
      !TrustsPeer(fd.get())) {
    return ScopedFd();
  }
  return fd;
}

bool TrustsPeer(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return TrustsUser(peer.uid, geteuid());
}

bool TrustsUser(uid_t peer, uid_t own) {
  return peer == 0 || (peer == own && peer != kOverflowUid);
}

}  // namespace internal
}  // namespace miniray
