// The memory that this process lends to others on its machine: a pool of
// segments that are used again, because fresh pages cost several times what
// writing to them does.
//
// MINIRAY_SHARED_MEMORY_MB limits it; 0 turns it off. Without it a quarter of
// the machine's memory, or of the control group's where that has a limit. What
// is not used for a while is given back.

#ifndef MINIRAY_RUNTIME_SHM_SHARED_MEMORY_H_
#define MINIRAY_RUNTIME_SHM_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/shm/segment.h"

namespace miniray {

class SharedMemory;

// Memory from the pool, until the last holder lets go.
class SharedBlock {
 public:
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  char* data() const { return segment_->data(); }
  size_t size() const { return size_; }
  const SegmentName& segment() const { return segment_->name(); }
  uint64_t generation() const { return generation_; }

 private:
  friend class SharedMemory;
  SharedBlock(SharedMemory* pool, std::unique_ptr<Segment> segment, size_t size)
      : pool_(pool),
        segment_(std::move(segment)),
        size_(size),
        generation_(segment_->generation()) {}

  SharedMemory* const pool_;
  std::unique_ptr<Segment> segment_;
  const size_t size_;
  const uint64_t generation_;
};

// Thread-safe.
class SharedMemory {
 public:
  struct Options {
    uint64_t max_bytes = 0;
    // A segment that serves nobody for so long is given back.
    absl::Duration idle = absl::Seconds(10);
  };

  // This process's pool.
  static SharedMemory& Get();

  explicit SharedMemory(Options options) : options_(options) {}

  // Returns `size` bytes whose contents are left over from an earlier use. Null
  // if the limit is reached or the system has no more: use ordinary memory.
  std::shared_ptr<SharedBlock> Allocate(size_t size) ABSL_LOCKS_EXCLUDED(mu_);

  // The block that `address` lies in; null if it is not the pool's.
  std::shared_ptr<SharedBlock> Find(const void* address) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // A segment by which others find out whether they can read ours. Null if
  // there is none.
  const Segment* probe() ABSL_LOCKS_EXCLUDED(mu_);

  // Of all segments, in use or not.
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

  // Gives back what has been idle; runs by itself.
  void Trim() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class SharedBlock;
  struct Free {
    std::unique_ptr<Segment> segment;
    absl::Time since;
  };

  // Takes a free segment that serves for `size` bytes; null if there is none.
  std::unique_ptr<Segment> TakeFree(size_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Return(std::unique_ptr<Segment> segment) ABSL_LOCKS_EXCLUDED(mu_);
  void TrimLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  std::unique_ptr<Segment> probe_ ABSL_GUARDED_BY(mu_);
  bool probed_ ABSL_GUARDED_BY(mu_) = false;
  bool trimming_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t segments_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Free> free_ ABSL_GUARDED_BY(mu_);
  // By the address behind their last byte.
  std::map<const char*, std::weak_ptr<SharedBlock>> used_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_SHM_SHARED_MEMORY_H_
