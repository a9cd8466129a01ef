// The bytes of one object: a memfd that is filled once, then sealed.

#ifndef MINIRAY_RUNTIME_OBJECTS_MEMORY_FILE_H_
#define MINIRAY_RUNTIME_OBJECTS_MEMORY_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"

namespace miniray {

// Thread-safe once sealed.
class MemoryFile {
 public:
  // Errors: RESOURCE_EXHAUSTED, no file descriptors.
  static absl::StatusOr<std::unique_ptr<MemoryFile>> Create();

  // Errors: RESOURCE_EXHAUSTED, no memory.
  absl::Status Append(absl::string_view bytes);
  // Nobody can change it from here on.
  absl::Status Seal();

  int64_t size() const { return size_; }

  // Where processes of the same user on this machine can open it while this
  // process lives.
  std::string path() const;

  // Errors: INTERNAL.
  absl::Status Read(int64_t offset, int64_t size, std::string* out) const;

 private:
  explicit MemoryFile(ScopedFd fd) : fd_(std::move(fd)) {}

  const ScopedFd fd_;
  int64_t size_ = 0;
};

// Maps a sealed file of another process; the cord holds the mapping. Errors:
// NOT_FOUND, it is gone. FAILED_PRECONDITION, it is not sealed or has another
// size.
absl::StatusOr<absl::Cord> MapFile(const std::string& path, int64_t size);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_MEMORY_FILE_H_
