// Objects on disk, for which a store has no memory at the moment. The files
// have no names: they go with the process, however it ends.

#ifndef MINIRAY_RUNTIME_OBJECTS_SPILL_FOLDER_H_
#define MINIRAY_RUNTIME_OBJECTS_SPILL_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/files.h"
#include "runtime/objects/memory_file.h"

namespace miniray {

// One object. Thread-safe.
class SpillFile {
 public:
  int64_t size() const { return size_; }

  // Errors: INTERNAL, the disk.
  absl::Status Read(int64_t offset, int64_t size, std::string* out) const;

  // Copies all of it into an empty file of its size.
  absl::Status CopyTo(MemoryFile* memory) const;

 private:
  friend class SpillFolder;
  SpillFile(ScopedFd fd, int64_t size) : fd_(std::move(fd)), size_(size) {}

  const ScopedFd fd_;
  const int64_t size_;
};

// Thread-safe.
class SpillFolder {
 public:
  // Creates the folder, and removes from it what processes have left that were
  // killed in an unlucky moment, on file systems where a file has a name for a
  // moment. Errors: with the folder's name.
  static absl::StatusOr<std::unique_ptr<SpillFolder>> Open(std::string path);

  // Writes a complete object. Errors: RESOURCE_EXHAUSTED, with folder, size and
  // free space.
  absl::StatusOr<std::shared_ptr<const SpillFile>> Write(
      const MemoryFile& memory) const;

  const std::string& path() const { return path_; }

 private:
  explicit SpillFolder(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<ScopedFd> CreateFile() const;

  const std::string path_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_SPILL_FOLDER_H_
