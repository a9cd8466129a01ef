// How many answers may be streams at once: each holds a thread of the server.

#ifndef MINIRAY_RUNTIME_DASHBOARD_STREAM_SLOTS_H_
#define MINIRAY_RUNTIME_DASHBOARD_STREAM_SLOTS_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace miniray {

// Thread-safe; must outlive what it gives.
class StreamSlots {
 public:
  explicit StreamSlots(int free) : free_(free) {}

  // Held as long as a copy lives. Null: none is free.
  std::shared_ptr<void> Take() {
    absl::MutexLock lock(&mu_);
    if (free_ == 0) return nullptr;
    --free_;
    return std::shared_ptr<void>(this, [](void* slots) {
      static_cast<StreamSlots*>(slots)->GiveBack();
    });
  }

 private:
  void GiveBack() {
    absl::MutexLock lock(&mu_);
    ++free_;
  }

  absl::Mutex mu_;
  int free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_STREAM_SLOTS_H_
