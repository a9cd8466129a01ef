#include "train/data/line_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

constexpr size_t kFirstBufferBytes = size_t{64} << 10;

}  // namespace

absl::StatusOr<LineReader> LineReader::Open(const std::string& path,
                                            int64_t offset_bytes) {
  ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, path);
  if (offset_bytes > 0 &&
      lseek(fd.get(), static_cast<off_t>(offset_bytes), SEEK_SET) < 0) {
    return ErrnoStatus(errno, path);
  }
  return LineReader(path, std::move(fd), offset_bytes);
}

LineReader::LineReader(std::string path, ScopedFd fd, int64_t offset_bytes)
    : path_(std::move(path)),
      fd_(std::move(fd)),
      buffer_(kFirstBufferBytes),
      offset_bytes_(offset_bytes) {}

absl::Status LineReader::Fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (buffer_.size() >= kMaxLineBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": the line at byte ", offset_bytes_, " is longer than ",
          kMaxLineBytes, " bytes: not a text file?"));
    }
    buffer_.resize(2 * buffer_.size());
  }
  while (true) {
    const ssize_t count =
        read(fd_.get(), buffer_.data() + end_, buffer_.size() - end_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, path_);
    if (count == 0) at_end_ = true;
    end_ += static_cast<size_t>(count);
    return absl::OkStatus();
  }
}

absl::StatusOr<std::optional<LineReader::Line>> LineReader::Next() {
  size_t searched = 0;  // Unread bytes without an end of line among them.
  while (true) {
    const char* const from = buffer_.data() + begin_;
    const size_t unread = end_ - begin_;
    const void* const found =
        std::memchr(from + searched, '\n', unread - searched);
    if (found == nullptr && !at_end_) {
      searched = unread;
      MR_RETURN_IF_ERROR(Fill());
      continue;
    }
    if (found == nullptr && unread == 0) return std::nullopt;
    const size_t length =
        found == nullptr
            ? unread
            : static_cast<size_t>(static_cast<const char*>(found) - from);
    const size_t taken = length + (found == nullptr ? 0 : 1);
    Line line{.text = absl::string_view(from, length),
              .offset_bytes = offset_bytes_};
    begin_ += taken;
    offset_bytes_ += static_cast<int64_t>(taken);
    if (!line.text.empty() && line.text.back() == '\r') {
      line.text.remove_suffix(1);
    }
    return line;
  }
}

}  // namespace miniray::train
