#include "runtime/objects/memory_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Tries to seal a file whose pages somebody still reads. The kernel itself
// waits 150 ms for them in each.
constexpr int kSealTries = 40;

// Writes all of the parts at `offset`; uses them up.
absl::Status WriteAt(int fd, iovec* parts, int count, int64_t offset) {
  while (count > 0) {
    const ssize_t n = pwritev(fd, parts, count, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for an object: ", strerror(errno)));
    }
    offset += n;
    auto left = static_cast<size_t>(n);
    while (count > 0 && left >= parts->iov_len) {
      left -= parts->iov_len;
      ++parts;
      --count;
    }
    if (count > 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + left;
      parts->iov_len -= left;
    }
  }
  return absl::OkStatus();
}

// Opens the file if it is the one that is meant.
absl::StatusOr<ScopedFd> OpenShared(const v1::SharedFile& file) {
  if (file.machine() != MachineId()) {
    return absl::FailedPreconditionError("the object is on another machine");
  }
  const std::string path =
      absl::StrCat("/proc/", file.pid(), "/fd/", file.fd());
  // Not before it is known to be a file: to open a device or a pipe may block.
  const ScopedFd found(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found.valid()) {
    const std::string what = absl::StrCat("open ", path, ": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(what)
                           : absl::FailedPreconditionError(what);
  }
  struct stat st;
  if (fstat(found.get(), &st) != 0) return ErrnoStatus(errno, "stat an object");
  if (!S_ISREG(st.st_mode) || st.st_ino != file.inode()) {
    return absl::NotFoundError(absl::StrCat(path, " is another file"));
  }
  ScopedFd fd(open(absl::StrCat("/proc/self/fd/", found.get()).c_str(),
                   O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open an object");
  // What shrinks under a mapping kills its reader.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (file.size() < 0 || st.st_size != file.size() || seals < 0 ||
      (seals & kSeals) != kSeals) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is not a sealed object of ", file.size(), " bytes"));
  }
  return fd;
}

absl::StatusOr<const char*> MapMemory(int fd, int64_t size) {
  void* const memory =
      mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "map an object");
  return static_cast<const char*>(memory);
}

void Unmap(const char* memory, int64_t size) {
  munmap(const_cast<char*>(memory), static_cast<size_t>(size));
}

}  // namespace

absl::StatusOr<std::shared_ptr<MemoryFile>> MemoryFile::Create(int64_t size) {
  ScopedFd fd(memfd_create("miniray-object", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memfd_create: ", strerror(errno)));
  }
  struct stat st;
  if (ftruncate(fd.get(), size) != 0 || fstat(fd.get(), &st) != 0) {
    return ErrnoStatus(errno, absl::StrCat("an object of ", size, " bytes"));
  }
  return std::shared_ptr<MemoryFile>(
      new MemoryFile(std::move(fd), size, st.st_ino));
}

absl::StatusOr<std::shared_ptr<MemoryFile>> MemoryFile::Adopt(
    const v1::SharedFile& file) {
  absl::StatusOr<ScopedFd> fd = OpenShared(file);
  if (!fd.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a file cannot be taken over: ", fd.status().message()));
  }
  auto adopted = std::shared_ptr<MemoryFile>(
      new MemoryFile(*std::move(fd), file.size(), file.inode()));
  absl::MutexLock lock(&adopted->mu_);
  adopted->filled_ = file.size();
  return adopted;
}

absl::Status MemoryFile::Append(const absl::Cord& bytes) {
  const int64_t offset = filled();
  if (static_cast<int64_t>(bytes.size()) > size_ - offset) {
    return absl::InvalidArgumentError(
        "more bytes of an object came than were announced");
  }
  constexpr int kParts = 64;
  static_assert(kParts <= IOV_MAX);
  iovec parts[kParts];
  int count = 0;
  int64_t queued = 0, written = 0;
  for (absl::string_view chunk : bytes.Chunks()) {
    parts[count++] = {const_cast<char*>(chunk.data()), chunk.size()};
    queued += static_cast<int64_t>(chunk.size());
    if (count < kParts) continue;
    MR_RETURN_IF_ERROR(WriteAt(fd_.get(), parts, count, offset + written));
    written = queued;
    count = 0;
  }
  MR_RETURN_IF_ERROR(WriteAt(fd_.get(), parts, count, offset + written));
  absl::MutexLock lock(&mu_);
  filled_ += queued;
  return absl::OkStatus();
}

absl::Status MemoryFile::Append(absl::string_view bytes) {
  return Append(absl::MakeCordFromExternal(bytes, [] {}));
}

absl::Status MemoryFile::Seal() {
  if (const int64_t filled = this->filled(); filled != size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("of an object of ", size_, " bytes came ", filled));
  }
  // One that was taken over is sealed.
  if ((fcntl(fd_.get(), F_GET_SEALS) & kSeals) == kSeals) {
    return absl::OkStatus();
  }
  // EBUSY: not yet. Who passes the object on, or the kernel, which moves pages
  // about on a busy machine, has one in hand for a moment.
  int error = EBUSY;
  for (int i = 0; error == EBUSY && i < kSealTries; ++i) {
    error = fcntl(fd_.get(), F_ADD_SEALS, kSeals) == 0 ? 0 : errno;
  }
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "seal an object");
}

void MemoryFile::Abandon() {
  absl::MutexLock lock(&mu_);
  abandoned_ = true;
}

int64_t MemoryFile::filled() const {
  absl::MutexLock lock(&mu_);
  return filled_;
}

absl::StatusOr<int64_t> MemoryFile::AwaitMore(int64_t offset,
                                              absl::Duration timeout) const {
  auto more = [this, offset] {
    mu_.AssertHeld();
    return filled_ > offset || filled_ == size_ || abandoned_;
  };
  absl::MutexLock lock(&mu_);
  mu_.AwaitWithTimeout(absl::Condition(&more), timeout);
  if (abandoned_) {
    return absl::AbortedError("the copy of the object was given up");
  }
  return filled_;
}

absl::StatusOr<std::shared_ptr<const char>> MemoryFile::Map() const {
  if (size_ == 0) return std::shared_ptr<const char>();
  // Through a descriptor that cannot write: any other mapping forbids the seal.
  const ScopedFd fd(open(absl::StrCat("/proc/self/fd/", fd_.get()).c_str(),
                         O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open an object");
  MR_ASSIGN_OR_RETURN(const char* const memory, MapMemory(fd.get(), size_));
  return std::shared_ptr<const char>(
      memory, [self = shared_from_this()](const char* mapped) {
        Unmap(mapped, self->size_);
      });
}

v1::SharedFile MemoryFile::shared() const {
  v1::SharedFile file;
  file.set_machine(MachineId());
  file.set_pid(getpid());
  file.set_fd(fd_.get());
  file.set_inode(inode_);
  file.set_size(size_);
  return file;
}

absl::StatusOr<absl::Cord> MapFile(const v1::SharedFile& file) {
  MR_ASSIGN_OR_RETURN(const ScopedFd fd, OpenShared(file));
  const int64_t size = file.size();
  if (size == 0) return absl::Cord();
  MR_ASSIGN_OR_RETURN(const char* const memory, MapMemory(fd.get(), size));
  return absl::MakeCordFromExternal(
      absl::string_view(memory, static_cast<size_t>(size)),
      [memory, size] { Unmap(memory, size); });
}

const std::string& MachineId() {
  static const std::string* const id = [] {
    const auto boot = ReadFile("/proc/sys/kernel/random/boot_id");
    char name[64] = {};
    const ssize_t n = readlink("/proc/self/ns/pid", name, sizeof(name) - 1);
    // Where one of them is unknown, nothing is shared.
    if (!boot.ok() || n <= 0) return new std::string(absl::StrCat(getpid()));
    return new std::string(
        absl::StrCat(absl::StripSuffix(*boot, "\n"), " ", name));
  }();
  return *id;
}

}  // namespace miniray
