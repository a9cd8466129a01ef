// Small file helpers that return absl::Status with path and cause.

#ifndef MINIRAY_RUNTIME_BASE_FILES_H_
#define MINIRAY_RUNTIME_BASE_FILES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace miniray {

// Returns a status for errno `error`: "<what>: <strerror>", with the code that
// fits (NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, …).
absl::Status ErrnoStatus(int error, absl::string_view what);

absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes to a temporary file beside `path` and renames it, so that a reader
// sees the old bytes or the new ones and a failure leaves nothing behind.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes, mode_t mode = 0644);

// For what has to outlast a power failure, in this order: WriteToDisk of each
// file, under another name; rename; SyncToDisk of the folder.

// Writes the chunks, one behind the other, to a file, over what it had, and
// forces them to the disk; the file's name in its folder is not. After an error
// it may have a part of them.
absl::Status WriteToDisk(const std::string& path,
                         absl::Span<const absl::string_view> chunks);

// Forces a file, or the names that a folder has, to the disk. OK for folders of
// file systems that have nothing to do for them.
absl::Status SyncToDisk(const std::string& path);

// Writes what a user named as output: atomically where that is a regular file
// or nothing yet (symbolic links are followed), else into what is there (a
// device, a pipe with a reader).
absl::Status WriteOutput(const std::string& path, absl::string_view bytes);

// Creates the folder and its parents; OK if it exists.
absl::Status MakeDirectories(const std::string& path, mode_t mode = 0755);

// Returns the last `max_bytes` of a file (less if it is shorter).
absl::StatusOr<std::string> ReadFileTail(const std::string& path,
                                         int64_t max_bytes);

// Lower-case hex SHA-256 of a file's bytes.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

// Path of this process's executable.
absl::StatusOr<std::string> ExecutablePath();

// Where this user's clusters on this machine keep sockets, logs, packages and
// process records: $MINIRAY_RUNTIME_DIR, else <$TMPDIR or /tmp>/miniray-<uid>.
// The folder is created with mode 0700; one that another user owns is refused.
absl::StatusOr<std::string> RuntimeDirectory();

// A file descriptor, closed at the end. Movable.
class ScopedFd {
 public:
  ScopedFd() = default;
  explicit ScopedFd(int fd) : fd_(fd) {}
  ScopedFd(ScopedFd&& other) noexcept : fd_(other.release()) {}
  ScopedFd& operator=(ScopedFd&& other) noexcept;
  ~ScopedFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_FILES_H_
