// The memory of other processes on this machine that this one reads. Mappings
// are kept for a while, since the same segments come again and again.

#ifndef MINIRAY_RUNTIME_SHM_BORROWED_MEMORY_H_
#define MINIRAY_RUNTIME_SHM_BORROWED_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/shm/segment.h"

namespace miniray {

// Thread-safe.
class BorrowedMemory {
 public:
  // A segment in one of its uses, read-only, as long as the lease lives.
  struct Lease {
    std::shared_ptr<MappedSegment> segment;
    std::shared_ptr<void> reading;
    const char* data() const { return segment->data(); }
  };

  // This process's.
  static BorrowedMemory& Get();

  // True if this process can read that one's segments, and is known to it by
  // the same number.
  static bool CanRead(const SegmentName& name);

  // Errors: those of MappedSegment. OUT_OF_RANGE, the segment has not `size`
  // bytes.
  absl::StatusOr<Lease> Borrow(const SegmentName& name, uint64_t generation,
                               uint64_t size) ABSL_LOCKS_EXCLUDED(mu_);

  // The segment that `address` lies in, if it is a borrowed one; else null.
  std::shared_ptr<MappedSegment> Find(const void* address) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Memory of the caller's own that begins as `bytes`, without copying them
  // now, if they lie in a borrowed segment; else null. The owner may begin no
  // new use while the result lives: it is for the caller to keep a lease.
  std::shared_ptr<char> MapPrivate(absl::string_view bytes) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Forgets mappings that were idle for `idle`; runs by itself.
  void Trim(absl::Duration idle) ABSL_LOCKS_EXCLUDED(mu_);

  size_t mappings() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Key = std::tuple<pid_t, int, uint64_t>;
  struct Entry {
    std::shared_ptr<MappedSegment> segment;
    absl::Time last_use;
  };

  void TrimLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  bool trimming_ ABSL_GUARDED_BY(mu_) = false;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mu_);
  // By the address behind their last byte; those that somebody still reads
  // remain when their entry is forgotten.
  std::map<const char*, std::weak_ptr<MappedSegment>> mapped_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_SHM_BORROWED_MEMORY_H_
