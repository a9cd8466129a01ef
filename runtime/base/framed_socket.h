// Messages over a stream socket: a 4-byte little-endian length, then the bytes.

#ifndef MINIRAY_RUNTIME_BASE_FRAMED_SOCKET_H_
#define MINIRAY_RUNTIME_BASE_FRAMED_SOCKET_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"

namespace miniray {

// A message as it goes over a socket. Errors: INVALID_ARGUMENT, 4 GiB or more.
absl::StatusOr<std::string> MakeFrame(absl::string_view message);

// sendmsg, with descriptors beside the first byte.
ssize_t SendWithFds(int socket, absl::string_view bytes,
                    const std::vector<ScopedFd>& fds, int flags);

// recvmsg: adds the descriptors that came beside the bytes, close-on-exec.
ssize_t ReceiveWithFds(int socket, char* buffer, size_t size,
                       std::vector<ScopedFd>* fds);

// Writes one message; blocks. Errors: UNAVAILABLE, the peer is gone.
// INVALID_ARGUMENT, 4 GiB or more.
absl::Status WriteFrame(int fd, absl::string_view message);

// Reads one message; blocks. Errors: OUT_OF_RANGE, the peer has closed between
// messages. DATA_LOSS, it closed within one or announced more than `max_bytes`.
absl::StatusOr<std::string> ReadFrame(int fd, size_t max_bytes = 64 << 20);

// Puts frames together from pieces, for non-blocking sockets.
class FrameParser {
 public:
  explicit FrameParser(size_t max_bytes = 64 << 20) : max_bytes_(max_bytes) {}
  void Feed(absl::string_view bytes);
  // The next whole message, or nothing yet. Errors: DATA_LOSS.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  const size_t max_bytes_;
  std::string buffer_;
  size_t start_ = 0;  // Of what is still to be parsed.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_FRAMED_SOCKET_H_
