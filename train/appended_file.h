// A file that grows record by record, and may be read at any time.

#ifndef MINIRAY_TRAIN_APPENDED_FILE_H_
#define MINIRAY_TRAIN_APPENDED_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"

namespace miniray::train {

// Not thread-safe. Movable.
//
// A record is written with one system call as it is appended, into the system's
// page cache: it outlives the process, not the machine. Only the last record
// can be cut: where the process was killed in that call, or the disk is full.
class AppendedFile {
 public:
  // Opens or creates the file, and locks it as long as this object lives.
  // Errors: ALREADY_EXISTS, somebody else has it open like this. Else as
  // open().
  static absl::StatusOr<AppendedFile> Open(const std::string& path);

  // Bytes that stood in it when it was opened.
  int64_t initial_bytes() const { return initial_bytes_; }

  // After an error nothing is lost: what could not be written is kept, and the
  // next call goes on with it.
  absl::Status Append(absl::string_view record);

  // `bytes` are the whole file from now on. A process that is killed meanwhile
  // leaves it cut. Errors: as Append; of ftruncate.
  absl::Status Replace(absl::string_view bytes);

  // Tries to write what an earlier call could not.
  absl::Status Flush();

 private:
  AppendedFile(std::string path, ScopedFd fd, int64_t initial_bytes)
      : path_(std::move(path)),
        fd_(std::move(fd)),
        initial_bytes_(initial_bytes) {}

  std::string path_;
  ScopedFd fd_;
  int64_t initial_bytes_;
  std::string pending_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_APPENDED_FILE_H_
