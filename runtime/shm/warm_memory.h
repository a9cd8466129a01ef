// Large blocks of memory that are used again: fresh pages cost several times
// what writing to them does.

#ifndef MINIRAY_RUNTIME_SHM_WARM_MEMORY_H_
#define MINIRAY_RUNTIME_SHM_WARM_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace miniray {

// Blocks that no other process sees, in huge pages where the system has them.
// For processes that share none, or no more, with others (SharedMemory).
// Thread-safe.
class PrivateMemory {
 public:
  struct Options {
    // What serves nobody is kept for so long, up to so many bytes.
    absl::Duration idle = absl::Seconds(10);
    uint64_t max_idle_bytes = uint64_t{1} << 30;
  };

  // This process's.
  static PrivateMemory& Get();

  explicit PrivateMemory(Options options) : options_(options) {}
  // REQUIRES: nobody holds a block any more.
  ~PrivateMemory();

  // Returns `size` bytes, at the beginning of a page, whose contents are left
  // over from an earlier use; they go back when the last holder lets go. Null:
  // the system has no more, or `size` is 0.
  std::shared_ptr<char> Allocate(size_t size) ABSL_LOCKS_EXCLUDED(mu_);

  // That serve nobody.
  uint64_t idle_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

  // Gives back what has been idle; runs by itself in the process's own.
  void Trim() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Block {
    char* data = nullptr;
    size_t capacity = 0;
    absl::Time since;  // When it became idle.
  };

  void Return(Block block) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  bool trimming_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Block> idle_ ABSL_GUARDED_BY(mu_);  // The last is the warmest.
};

// Returns `size` bytes of SharedMemory where this process has some, else of
// PrivateMemory, as above. Null: use ordinary memory, which is no slower for so
// few bytes, or all there is.
std::shared_ptr<char> AllocateWarm(size_t size);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_SHM_WARM_MEMORY_H_
