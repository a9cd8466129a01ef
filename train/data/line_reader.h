// The lines of a text file, in bounded memory. Not for users.

#ifndef MINIRAY_TRAIN_DATA_LINE_READER_H_
#define MINIRAY_TRAIN_DATA_LINE_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"

namespace miniray::train {

class LineReader {
 public:
  static constexpr size_t kMaxLineBytes = size_t{16} << 20;

  struct Line {
    absl::string_view text;  // Without its end. Valid until the next call.
    int64_t offset_bytes;    // Of its first byte in the file.
  };

  // Opens at a byte that begins a line.
  static absl::StatusOr<LineReader> Open(const std::string& path,
                                         int64_t offset_bytes);

  // Returns the next line, empty ones too; nothing at the end of the file. The
  // last line need not end. Errors: INVALID_ARGUMENT, a line is longer than
  // kMaxLineBytes. Those of the system.
  absl::StatusOr<std::optional<Line>> Next();

 private:
  LineReader(std::string path, ScopedFd fd, int64_t offset_bytes);
  // Appends what the file has next to what is unread.
  absl::Status Fill();

  std::string path_;
  ScopedFd fd_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // Unread bytes are [begin_, end_) of the buffer.
  size_t end_ = 0;
  int64_t offset_bytes_;  // Of begin_ in the file.
  bool at_end_ = false;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_LINE_READER_H_
