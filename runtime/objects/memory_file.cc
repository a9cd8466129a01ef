#include "runtime/objects/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace miniray {
namespace {

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryFile>> MemoryFile::Create() {
  ScopedFd fd(memfd_create("miniray-object", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memfd_create: ", strerror(errno)));
  }
  return std::unique_ptr<MemoryFile>(new MemoryFile(std::move(fd)));
}

absl::Status MemoryFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_.get(), bytes.data(), bytes.size(), size_);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for an object: ", strerror(errno)));
    }
    size_ += n;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status MemoryFile::Seal() {
  if (fcntl(fd_.get(), F_ADD_SEALS, kSeals) != 0) {
    return ErrnoStatus(errno, "seal an object");
  }
  return absl::OkStatus();
}

std::string MemoryFile::path() const {
  return absl::StrCat("/proc/", getpid(), "/fd/", fd_.get());
}

absl::Status MemoryFile::Read(int64_t offset, int64_t size,
                              std::string* out) const {
  out->resize(static_cast<size_t>(size));
  int64_t done = 0;
  while (done < size) {
    const ssize_t n = pread(fd_.get(), out->data() + done,
                            static_cast<size_t>(size - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::InternalError("an object is cut off");
    done += n;
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Cord> MapFile(const std::string& path, int64_t size) {
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return absl::NotFoundError(
        absl::StrCat("open ", path, ": ", strerror(errno)));
  }
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, "stat an object");
  // What shrinks under a mapping kills its reader.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (size < 0 || st.st_size != size || seals < 0 ||
      (seals & kSeals) != kSeals) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not a sealed object of ", size, " bytes"));
  }
  if (size == 0) return absl::Cord();
  void* const memory = mmap(nullptr, static_cast<size_t>(size), PROT_READ,
                            MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "map an object");
  return absl::MakeCordFromExternal(
      absl::string_view(static_cast<const char*>(memory),
                        static_cast<size_t>(size)),
      [memory, size] { munmap(memory, static_cast<size_t>(size)); });
}

}  // namespace miniray
