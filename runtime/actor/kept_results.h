// Results that stay with the actor that made them (Reply.kept), or that it put
// into its node's object store (Call.keep_result), and what results refer to,
// until the caller releases them or its session ends.

#ifndef MINIRAY_RUNTIME_ACTOR_KEPT_RESULTS_H_
#define MINIRAY_RUNTIME_ACTOR_KEPT_RESULTS_H_

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  // Returns the id that it can be fetched by. `holds` is kept with it.
  std::string Add(const std::string& caller, absl::Cord value,
                  std::vector<std::shared_ptr<void>> holds) {
    absl::MutexLock lock(&mu_);
    bytes_ += value.size();
    return Insert({caller, std::move(value), std::move(holds)});
  }

  // Keeps what a result refers to, though it is sent itself. Returns an id for
  // Release.
  std::string Hold(const std::string& caller,
                   std::vector<std::shared_ptr<void>> holds) {
    absl::MutexLock lock(&mu_);
    return Insert({caller, std::nullopt, std::move(holds)});
  }

  // One that lies in the store by this id, as long as `holds` live.
  void AddStored(const std::string& caller, const std::string& id,
                 std::vector<std::shared_ptr<void>> holds) {
    absl::MutexLock lock(&mu_);
    results_.emplace(id, Kept{caller, std::nullopt, std::move(holds)});
  }

  absl::StatusOr<absl::Cord> Find(const std::string& id) const {
    absl::MutexLock lock(&mu_);
    auto it = results_.find(id);
    if (it == results_.end() || !it->second.value.has_value()) {
      return absl::NotFoundError(absl::StrCat(
          "the result ", id,
          " was released (the last reference to it in the "
          "process that called for it is gone), or never was here"));
    }
    return *it->second.value;
  }

  void Release(const std::string& id) {
    Kept released;  // Dies unlocked.
    absl::MutexLock lock(&mu_);
    auto it = results_.find(id);
    if (it == results_.end()) return;
    released = Take(it);
  }

  // Its session has ended.
  void ReleaseAllOf(const std::string& caller) {
    std::vector<Kept> released;
    absl::MutexLock lock(&mu_);
    for (auto it = results_.begin(); it != results_.end();) {
      const auto next = std::next(it);
      if (it->second.caller == caller) released.push_back(Take(it));
      it = next;
    }
  }

  int64_t count() const {
    absl::MutexLock lock(&mu_);
    return static_cast<int64_t>(results_.size());
  }
  // In this process.
  int64_t bytes() const {
    absl::MutexLock lock(&mu_);
    return static_cast<int64_t>(bytes_);
  }

 private:
  struct Kept {
    std::string caller;
    std::optional<absl::Cord> value;  // Absent: it is not here.
    std::vector<std::shared_ptr<void>> holds;
  };
  using Results = absl::flat_hash_map<std::string, Kept>;

  std::string Insert(Kept kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::string id = NewId("result");
    results_.emplace(id, std::move(kept));
    return id;
  }
  Kept Take(Results::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Kept kept = std::move(it->second);
    if (kept.value.has_value()) bytes_ -= kept.value->size();
    results_.erase(it);
    return kept;
  }

  mutable absl::Mutex mu_;
  Results results_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_KEPT_RESULTS_H_
