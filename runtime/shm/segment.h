// A piece of memory that one process owns and other processes on the machine
// read: a memfd, so that nothing is left in any folder whoever dies, and whose
// size is not that of /dev/shm.
//
// Its first page is a header with what both sides must know: how often the
// memory was given to a new use (its generation), and which processes read it.
// A reader first counts itself in, then looks at the generation; the owner
// first raises the generation, then looks for readers. So either the reader
// finds that it came too late, or the owner finds the reader and leaves the
// memory alone.

#ifndef MINIRAY_RUNTIME_SHM_SEGMENT_H_
#define MINIRAY_RUNTIME_SHM_SEGMENT_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"

namespace miniray {

// Where a process finds another one's segment: file descriptor `fd` of process
// `pid`, which is what it is meant to be if it has this inode.
struct SegmentName {
  pid_t pid = 0;
  int fd = -1;
  uint64_t inode = 0;

  std::string ToString() const;  // "PID:FD:INODE"
  // Errors: INVALID_ARGUMENT.
  static absl::StatusOr<SegmentName> Parse(absl::string_view text);
};

// The owner's side. Thread-safe, but for the bytes themselves.
class Segment {
 public:
  // capacity: bytes, rounded up to whole pages. The memory is not touched yet.
  // Errors: RESOURCE_EXHAUSTED, no memory or file descriptors.
  static absl::StatusOr<std::unique_ptr<Segment>> Create(size_t capacity);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  char* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  const SegmentName& name() const { return name_; }
  uint64_t generation() const;

  // Begins a new use of the memory. False if a process still reads what an
  // earlier use left there; processes that have died do not count.
  bool Claim();

 private:
  Segment(ScopedFd fd, char* memory, size_t capacity, SegmentName name);

  const ScopedFd fd_;
  char* const memory_;
  char* const data_;
  const size_t capacity_;
  const SegmentName name_;
};

// The reader's side: a segment of some process, mapped. Thread-safe.
class MappedSegment {
 public:
  // Safe whatever `name` says. Errors: NOT_FOUND, the owner is gone.
  // FAILED_PRECONDITION, it is no segment. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<MappedSegment>> Open(
      const SegmentName& name);
  ~MappedSegment();
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;

  // Read-only.
  const char* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  // Where others find it as long as it is mapped here, whatever has become of
  // its owner: this process's own descriptor of it.
  SegmentName own_name() const;
  // The use that is read at present, or was last.
  uint64_t generation() const { return generation_.load(); }

  // Keeps the owner from beginning a new use of the memory while the result
  // lives, which keeps the mapping too. Errors: FAILED_PRECONDITION, it has
  // begun one since `generation`. RESOURCE_EXHAUSTED, too many processes read.
  static absl::StatusOr<std::shared_ptr<void>> BeginReading(
      std::shared_ptr<MappedSegment> segment, uint64_t generation);

  // Returns memory of the caller's own that begins as data() at `offset`:
  // pages are copied when they are first written to. REQUIRES: the range is in
  // the segment. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<char>> MapPrivate(size_t offset,
                                                   size_t size) const;

 private:
  MappedSegment(uint64_t inode, ScopedFd fd, void* memory, size_t size);

  const uint64_t inode_;
  const ScopedFd fd_;
  void* const memory_;
  const char* const data_;
  const size_t capacity_;
  std::atomic<uint64_t> generation_ = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_SHM_SEGMENT_H_
