// The bytes of one object: a memfd that is filled once, then sealed. Nothing of
// it is left behind, whoever dies.

#ifndef MINIRAY_RUNTIME_OBJECTS_MEMORY_FILE_H_
#define MINIRAY_RUNTIME_OBJECTS_MEMORY_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/object.pb.h"
#include "runtime/base/files.h"

namespace miniray {

// One thread fills it; all others may read what is there already. Held by
// shared_ptr.
class MemoryFile : public std::enable_shared_from_this<MemoryFile> {
 public:
  // Room for `size` bytes, which take memory as they come. Errors:
  // RESOURCE_EXHAUSTED, no file descriptors.
  static absl::StatusOr<std::shared_ptr<MemoryFile>> Create(int64_t size);

  // Takes over the sealed file of another process of this user. Errors:
  // FAILED_PRECONDITION, it is on another machine, or gone, or not what it is
  // said to be.
  static absl::StatusOr<std::shared_ptr<MemoryFile>> Adopt(
      const v1::SharedFile& file);

  // Errors: INVALID_ARGUMENT, more bytes than there is room for.
  // RESOURCE_EXHAUSTED, no memory.
  absl::Status Append(const absl::Cord& bytes) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Append(absl::string_view bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Nobody can change it from here on. Waits some seconds where others have its
  // pages in hand. Errors: INVALID_ARGUMENT, bytes are missing.
  absl::Status Seal() ABSL_LOCKS_EXCLUDED(mu_);
  // It stays incomplete; those who wait for it are told.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_);

  int64_t size() const { return size_; }
  int64_t filled() const ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until there is more than `offset` bytes, or all; returns how many
  // there are, which is no more than `offset` after `timeout`. Errors: ABORTED,
  // it was abandoned.
  absl::StatusOr<int64_t> AwaitMore(int64_t offset,
                                    absl::Duration timeout) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // [size()] bytes, of which filled() may be read. They hold this file. Null
  // for size 0. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<const char>> Map() const;

  // Where processes of the same user on this machine can map it while this
  // process has it.
  v1::SharedFile shared() const;

  // For system calls.
  int fd() const { return fd_.get(); }

 private:
  MemoryFile(ScopedFd fd, int64_t size, uint64_t inode)
      : fd_(std::move(fd)), size_(size), inode_(inode) {}

  const ScopedFd fd_;
  const int64_t size_;
  const uint64_t inode_;

  mutable absl::Mutex mu_;
  int64_t filled_ ABSL_GUARDED_BY(mu_) = 0;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
};

// Maps a sealed file of another process; the cord holds the mapping. Errors:
// NOT_FOUND, it is gone, or its place is taken by another one: ask anew.
// FAILED_PRECONDITION, it is not sealed, or on another machine.
absl::StatusOr<absl::Cord> MapFile(const v1::SharedFile& file);

// What SharedFile.machine is here.
const std::string& MachineId();

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_MEMORY_FILE_H_
