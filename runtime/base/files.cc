#include "runtime/base/files.h"

#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"

namespace miniray {

absl::Status ErrnoStatus(int error, absl::string_view what) {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      code = absl::StatusCode::kNotFound;
      break;
    case EEXIST:
      code = absl::StatusCode::kAlreadyExists;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = absl::StatusCode::kPermissionDenied;
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
      code = absl::StatusCode::kResourceExhausted;
      break;
    case EINVAL:
    case ENAMETOOLONG:
    case EISDIR:
      code = absl::StatusCode::kInvalidArgument;
      break;
    case EADDRINUSE:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      code = absl::StatusCode::kUnavailable;
      break;
    default:
      break;
  }
  return absl::Status(code, absl::StrCat(what, ": ", std::strerror(error)));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  return ReadFileTail(path, INT64_MAX);
}

absl::StatusOr<std::string> ReadFileTail(const std::string& path,
                                         int64_t max_bytes) {
  ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) {
    return ErrnoStatus(errno, absl::StrCat("stat ", path));
  }
  if (S_ISREG(st.st_mode) && st.st_size > max_bytes) {
    if (lseek(fd.get(), st.st_size - max_bytes, SEEK_SET) < 0) {
      return ErrnoStatus(errno, absl::StrCat("seek ", path));
    }
  }
  std::string text;
  char buffer[65536];
  while (true) {
    ssize_t n = read(fd.get(), buffer, sizeof(buffer));
    if (n == 0) return text;
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("read ", path));
    }
    text.append(buffer, static_cast<size_t>(n));
  }
}

namespace {

absl::Status WriteAll(int fd, absl::string_view bytes,
                      const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("write ", path));
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes, mode_t mode) {
  const std::string temporary = absl::StrCat(path, ".", NewId("tmp"));
  ScopedFd fd(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path));
  auto fail = [&](absl::string_view what) {
    absl::Status status = ErrnoStatus(errno, absl::StrCat(what, " ", path));
    unlink(temporary.c_str());
    return status;
  };
  if (absl::Status status = WriteAll(fd.get(), bytes, path); !status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  if (close(fd.release()) != 0) return fail("write");
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail("rename to");
  return absl::OkStatus();
}

absl::Status WriteToDisk(const std::string& path,
                         absl::Span<const absl::string_view> chunks) {
  ScopedFd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path));
  for (const absl::string_view chunk : chunks) {
    MR_RETURN_IF_ERROR(WriteAll(fd.get(), chunk, path));
  }
  if (fsync(fd.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("fsync ", path));
  }
  if (close(fd.release()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  return absl::OkStatus();
}

absl::Status SyncToDisk(const std::string& path) {
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  if (fsync(fd.get()) != 0 && errno != EINVAL) {
    return ErrnoStatus(errno, absl::StrCat("fsync ", path));
  }
  return absl::OkStatus();
}

absl::Status WriteOutput(const std::string& path, absl::string_view bytes) {
  struct stat st;
  const bool found = stat(path.c_str(), &st) == 0;
  if (!found && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  if (found && !S_ISREG(st.st_mode)) {
    ScopedFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
    MR_RETURN_IF_ERROR(WriteAll(fd.get(), bytes, path));
    if (close(fd.release()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("write ", path));
    }
    return absl::OkStatus();
  }
  // The file that a link names is replaced, not the link; a link to a file that
  // is to be made names it just as well.
  std::string real = path;
  char target[PATH_MAX];
  while (true) {  // stat saw no circle.
    const ssize_t n = readlink(real.c_str(), target, sizeof(target));
    if (n < 0) break;
    const std::filesystem::path next(
        std::string(target, static_cast<size_t>(n)));
    real = next.is_absolute()
               ? next.string()
               : (std::filesystem::path(real).parent_path() / next).string();
  }
  return WriteFileAtomically(real, bytes);
}

absl::Status MakeDirectories(const std::string& path, mode_t mode) {
  for (size_t end = 1; end <= path.size(); ++end) {
    if (end != path.size() && path[end] != '/') continue;
    const std::string prefix = path.substr(0, end);
    if (mkdir(prefix.c_str(), mode) == 0 || errno == EEXIST) continue;
    return ErrnoStatus(errno, absl::StrCat("create folder ", prefix));
  }
  struct stat st;
  if (stat(path.c_str(), &st) != 0) {
    return ErrnoStatus(errno, absl::StrCat("create folder ", path));
  }
  if (!S_ISDIR(st.st_mode)) {
    return ErrnoStatus(ENOTDIR, absl::StrCat("create folder ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (context == nullptr ||
      EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
    return absl::InternalError("OpenSSL could not start SHA-256");
  }
  std::vector<char> buffer(1 << 20);
  while (true) {
    ssize_t n = read(fd.get(), buffer.data(), buffer.size());
    if (n == 0) break;
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("read ", path));
    }
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(n));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context.get(), digest, &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(digest), size));
}

absl::StatusOr<std::string> ExecutablePath() {
  char buffer[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", buffer, sizeof(buffer));
  if (n < 0) return ErrnoStatus(errno, "read /proc/self/exe");
  return std::string(buffer, static_cast<size_t>(n));
}

absl::StatusOr<std::string> RuntimeDirectory() {
  std::string path;
  if (const char* set = std::getenv("MINIRAY_RUNTIME_DIR");
      set != nullptr && *set != '\0') {
    path = set;
    if (path[0] != '/') {
      std::error_code error;
      path = std::filesystem::absolute(path, error).string();
    }
  } else {
    const char* tmp = std::getenv("TMPDIR");
    path = absl::StrCat(tmp != nullptr && *tmp == '/' ? tmp : "/tmp",
                        "/miniray-", getuid());
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    if (errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("create folder ", path));
    }
    MR_RETURN_IF_ERROR(MakeDirectories(path, 0700));
  }
  struct stat st;
  if (lstat(path.c_str(), &st) != 0) {
    return ErrnoStatus(errno, absl::StrCat("stat ", path));
  }
  if (!S_ISDIR(st.st_mode) || st.st_uid != getuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path,
                     " is not a folder of this user; remove it or set "
                     "MINIRAY_RUNTIME_DIR to a folder of your own"));
  }
  return path;
}

ScopedFd& ScopedFd::operator=(ScopedFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int ScopedFd::release() { return std::exchange(fd_, -1); }

void ScopedFd::reset() {
  if (fd_ >= 0) close(release());
}

}  // namespace miniray
