#include "runtime/head/listen_failure.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "runtime/base/tcp_bind.h"

namespace miniray {

absl::Status WhyNotListening(const std::string& host, int port) {
  const std::string what =
      absl::StrCat("cannot listen on ", JoinHostPort(host, port));
  const int error = BindTcp(host, port).error;
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
