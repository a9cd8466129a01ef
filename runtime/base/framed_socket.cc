#include "runtime/base/framed_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

constexpr size_t kHeader = 4;
constexpr size_t kMaxFds = 8;

absl::StatusOr<size_t> ParseLength(absl::string_view header, size_t max_bytes) {
  size_t length = 0;
  for (size_t i = kHeader; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(header[i]);
  }
  if (length > max_bytes) {
    return absl::DataLossError(absl::StrCat("a message of ", length,
                                            " bytes was announced; at most ",
                                            max_bytes, " are taken"));
  }
  return length;
}

// Reads exactly `size` bytes, or fewer at the end of the stream.
absl::StatusOr<std::string> ReadExactly(int fd, size_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    ssize_t n = recv(fd, bytes.data() + done, size - done, 0);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) break;
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "receive");
    }
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> MakeFrame(absl::string_view message) {
  if (message.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", message.size(), " bytes is too long for a frame"));
  }
  std::string frame;
  frame.reserve(kHeader + message.size());
  for (size_t i = 0; i < kHeader; ++i) {
    frame.push_back(static_cast<char>(message.size() >> (8 * i)));
  }
  frame.append(message.data(), message.size());
  return frame;
}

ssize_t SendWithFds(int socket, absl::string_view bytes,
                    const std::vector<ScopedFd>& fds, int flags) {
  iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  if (!fds.empty()) {
    if (fds.size() > kMaxFds) {
      errno = EINVAL;
      return -1;
    }
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    for (size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  return sendmsg(socket, &message, flags);
}

ssize_t ReceiveWithFds(int socket, char* buffer, size_t size,
                       std::vector<ScopedFd>* fds) {
  iovec piece = {buffer, size};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds->emplace_back(fd);
    }
  }
  return n;
}

absl::Status WriteFrame(int fd, absl::string_view message) {
  MR_ASSIGN_OR_RETURN(const std::string frame, MakeFrame(message));
  size_t done = 0;
  while (done < frame.size()) {
    ssize_t n =
        send(fd, frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "send");
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFrame(int fd, size_t max_bytes) {
  MR_ASSIGN_OR_RETURN(const std::string header, ReadExactly(fd, kHeader));
  if (header.empty()) return absl::OutOfRangeError("the peer has closed");
  if (header.size() < kHeader) {
    return absl::DataLossError("the peer closed within a message");
  }
  MR_ASSIGN_OR_RETURN(const size_t length, ParseLength(header, max_bytes));
  MR_ASSIGN_OR_RETURN(std::string message, ReadExactly(fd, length));
  if (message.size() < length) {
    return absl::DataLossError("the peer closed within a message");
  }
  return message;
}

void FrameParser::Feed(absl::string_view bytes) {
  buffer_.erase(0, std::exchange(start_, 0));
  buffer_.append(bytes.data(), bytes.size());
}

absl::StatusOr<std::optional<std::string>> FrameParser::Next() {
  const auto left = absl::string_view(buffer_).substr(start_);
  if (left.size() < kHeader) return std::nullopt;
  MR_ASSIGN_OR_RETURN(const size_t length, ParseLength(left, max_bytes_));
  if (left.size() < kHeader + length) return std::nullopt;
  start_ += kHeader + length;
  return std::string(left.substr(kHeader, length));
}

}  // namespace miniray
