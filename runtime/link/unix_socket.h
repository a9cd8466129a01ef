// Unix sockets between processes of one machine. A process that serves at the
// TCP address HOST:PORT also listens at an abstract name that follows from it,
// so that who knows the address knows the name. Such names belong to a network
// namespace, as TCP addresses do.

#ifndef MINIRAY_RUNTIME_LINK_UNIX_SOCKET_H_
#define MINIRAY_RUNTIME_LINK_UNIX_SOCKET_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/files.h"

namespace miniray {
namespace internal {

// "@miniray-HOST:PORT", where '@' stands for the zero byte in front of abstract
// names, as in /proc/net/unix.
std::string UnixName(const std::string& address);

// Listens at the name of `address`; the socket does not block. Errors:
// ALREADY_EXISTS, another process has taken the name.
absl::StatusOr<ScopedFd> ListenUnix(const std::string& address);

// Connects to the process that serves at `address`, without blocking. Not
// valid: none does in this network namespace, or one of another user listens at
// its name, who might want to read what is meant for it. The process that is
// trusted is the one that the socket leads to, whatever becomes of the name.
ScopedFd DialUnix(const std::string& address);

// Whether the process at the other end runs as this user, or as root.
bool TrustsPeer(int fd);
// The same for users: `own` trusts itself and root.
bool TrustsUser(uid_t peer, uid_t own);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_LINK_UNIX_SOCKET_H_
