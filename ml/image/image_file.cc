#include "ml/image/image_file.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"

namespace miniray::ml {

absl::StatusOr<std::string> ReadImageFile(const std::string& path,
                                          int64_t max_bytes) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": expected a regular file"));
  }
  if (info.st_size > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": a file of ", info.st_size,
                     " bytes; the limit is ", max_bytes));
  }
  return ReadFile(path);
}

}  // namespace miniray::ml
