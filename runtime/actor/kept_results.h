// Results that stay with the actor that made them (Call.keep_result), until the
// caller releases them or its session ends.

#ifndef MINIRAY_RUNTIME_ACTOR_KEPT_RESULTS_H_
#define MINIRAY_RUNTIME_ACTOR_KEPT_RESULTS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/ids.h"

namespace miniray {
namespace internal {

// Thread-safe.
class KeptResults {
 public:
  // Returns the id that it can be fetched by.
  std::string Add(const std::string& caller, absl::Cord value) {
    std::string id = NewId("result");
    absl::MutexLock lock(&mu_);
    bytes_ += value.size();
    results_.emplace(id, std::make_pair(caller, std::move(value)));
    return id;
  }

  absl::StatusOr<absl::Cord> Find(const std::string& id) const {
    absl::MutexLock lock(&mu_);
    auto it = results_.find(id);
    if (it == results_.end()) {
      return absl::NotFoundError(absl::StrCat(
          "the result ", id,
          " was released (the last reference to it in the "
          "process that called for it is gone), or never was here"));
    }
    return it->second.second;
  }

  void Release(const std::string& id) {
    absl::MutexLock lock(&mu_);
    auto it = results_.find(id);
    if (it == results_.end()) return;
    bytes_ -= it->second.second.size();
    results_.erase(it);
  }

  // Its session has ended.
  void ReleaseAllOf(const std::string& caller) {
    absl::MutexLock lock(&mu_);
    for (auto it = results_.begin(); it != results_.end();) {
      const auto next = std::next(it);
      if (it->second.first == caller) {
        bytes_ -= it->second.second.size();
        results_.erase(it);
      }
      it = next;
    }
  }

  int64_t count() const {
    absl::MutexLock lock(&mu_);
    return static_cast<int64_t>(results_.size());
  }
  int64_t bytes() const {
    absl::MutexLock lock(&mu_);
    return static_cast<int64_t>(bytes_);
  }

 private:
  mutable absl::Mutex mu_;
  absl::flat_hash_map<std::string, std::pair<std::string, absl::Cord>> results_
      ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_KEPT_RESULTS_H_
