#include "train/appended_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace miniray::train {

absl::StatusOr<AppendedFile> AppendedFile::Open(const std::string& path) {
  ScopedFd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  // A file system without locks is no reason not to write.
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " is being written by another training"));
  }
  struct stat st;
  if (fstat(fd.get(), &st) != 0) {
    return ErrnoStatus(errno, absl::StrCat("stat ", path));
  }
  return AppendedFile(path, std::move(fd), st.st_size);
}

absl::Status AppendedFile::Append(absl::string_view record) {
  absl::StrAppend(&pending_, record);
  return Flush();
}

absl::Status AppendedFile::Replace(absl::string_view bytes) {
  if (ftruncate(fd_.get(), 0) != 0) {
    return ErrnoStatus(errno, absl::StrCat("truncate ", path_));
  }
  pending_.clear();
  return Append(bytes);
}

absl::Status AppendedFile::Flush() {
  while (!pending_.empty()) {
    const ssize_t n = write(fd_.get(), pending_.data(), pending_.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("write ", path_));
    }
    pending_.erase(0, static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace miniray::train
