#include "runtime/objects/spill_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

constexpr char kPrefix[] = "miniray-object-";
constexpr int64_t kCopyBytes = 1 << 20;

// "PREFIX<pid>-XXXXXX": true unless a process with that pid lives.
bool IsLeftover(absl::string_view name) {
  pid_t pid = 0;
  if (!absl::ConsumePrefix(&name, kPrefix) ||
      !absl::SimpleAtoi(name.substr(0, name.find('-')), &pid) || pid <= 0) {
    return false;
  }
  return pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH);
}

absl::Status CopyBytes(int from, int to, int64_t size) {
  const auto buffer = std::make_unique<char[]>(kCopyBytes);
  for (int64_t done = 0; done < size;) {
    const ssize_t got =
        pread(from, buffer.get(),
              static_cast<size_t>(std::min(kCopyBytes, size - done)), done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read");
    if (got == 0) return absl::InternalError("an object is cut off");
    for (ssize_t written = 0; written < got;) {
      const ssize_t n =
          pwrite(to, buffer.get() + written, static_cast<size_t>(got - written),
                 done + written);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "write");
      written += n;
    }
    done += got;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SpillFile::Read(int64_t offset, int64_t size,
                             std::string* out) const {
  out->resize(static_cast<size_t>(size));
  for (int64_t done = 0; done < size;) {
    const ssize_t n = pread(fd_.get(), out->data() + done,
                            static_cast<size_t>(size - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return absl::InternalError(
          absl::StrCat("a spilled object cannot be read: ",
                       n < 0 ? strerror(errno) : "it is cut off"));
    }
    done += n;
  }
  return absl::OkStatus();
}

absl::Status SpillFile::CopyTo(MemoryFile* memory) const {
  std::string buffer;
  for (int64_t done = 0; done < size_;) {
    const int64_t size = std::min(kCopyBytes, size_ - done);
    MR_RETURN_IF_ERROR(Read(done, size, &buffer));
    MR_RETURN_IF_ERROR(memory->Append(buffer));
    done += size;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SpillFolder>> SpillFolder::Open(
    std::string path) {
  MR_RETURN_IF_ERROR(Annotate(MakeDirectories(path, 0700), "the spill folder"));
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end;
       !error && entry != end; entry.increment(error)) {
    if (IsLeftover(entry->path().filename().string())) {
      unlink(entry->path().c_str());
    }
  }
  auto folder = std::unique_ptr<SpillFolder>(new SpillFolder(std::move(path)));
  // Better now than when memory is short.
  MR_RETURN_IF_ERROR(folder->CreateFile().status());
  return folder;
}

absl::StatusOr<ScopedFd> SpillFolder::CreateFile() const {
  ScopedFd fd(open(path_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd.valid()) return fd;
  std::string name = absl::StrCat(path_, "/", kPrefix, getpid(), "-XXXXXX");
  ScopedFd named(mkostemp(name.data(), O_CLOEXEC));
  if (!named.valid()) {
    return ErrnoStatus(errno,
                       absl::StrCat("make a file in the spill folder ", path_));
  }
  unlink(name.c_str());
  return named;
}

absl::StatusOr<std::shared_ptr<const SpillFile>> SpillFolder::Write(
    const MemoryFile& memory) const {
  absl::StatusOr<ScopedFd> fd = CreateFile();
  absl::Status status = fd.status();
  if (status.ok() && memory.size() > 0 &&
      fallocate(fd->get(), 0, 0, memory.size()) != 0 && errno == ENOSPC) {
    status = ErrnoStatus(errno, "reserve");  // Nothing was written in vain.
  }
  if (status.ok()) status = CopyBytes(memory.fd(), fd->get(), memory.size());
  if (status.ok()) {
    return std::shared_ptr<const SpillFile>(
        new SpillFile(*std::move(fd), memory.size()));
  }
  struct statvfs space = {};
  const int64_t free = statvfs(path_.c_str(), &space) == 0
                           ? static_cast<int64_t>(space.f_bavail) *
                                 static_cast<int64_t>(space.f_frsize)
                           : 0;
  return absl::ResourceExhaustedError(
      absl::StrCat("an object of ", memory.size(),
                   " bytes cannot be moved to the spill folder ", path_,
                   ", which has ", free, " bytes free: ", status.message()));
}

}  // namespace miniray
