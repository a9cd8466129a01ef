// The objects of a store, without gRPC: which there are, which are coming, how
// much they take.

#ifndef MINIRAY_RUNTIME_OBJECTS_OBJECT_TABLE_H_
#define MINIRAY_RUNTIME_OBJECTS_OBJECT_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "runtime/objects/memory_file.h"

namespace miniray {

// Thread-safe.
class ObjectTable {
 public:
  ObjectTable(int64_t max_bytes, size_t max_objects)
      : max_bytes_(max_bytes), max_objects_(max_objects) {}

  // Room for an object that is about to come. Given back by Abandon or kept by
  // Finish.
  struct Incoming {
    std::string id;
    std::string job_id;
    int64_t total_bytes = 0;
    bool is_copy = false;  // Another store has it as well.
    std::unique_ptr<MemoryFile> file;
  };

  // Reserves room; copies that nobody fetches at the moment make way. Errors:
  // RESOURCE_EXHAUSTED, it does not fit. ALREADY_EXISTS, it is here, or coming.
  // FAILED_PRECONDITION, its job has ended. INVALID_ARGUMENT.
  absl::StatusOr<std::unique_ptr<Incoming>> Begin(std::string id,
                                                  std::string job_id,
                                                  int64_t total_bytes,
                                                  bool is_copy);
  // Errors: INVALID_ARGUMENT, more bytes than were announced.
  // RESOURCE_EXHAUSTED.
  static absl::Status Append(Incoming* incoming, absl::string_view bytes);
  // The object is here. Errors: INVALID_ARGUMENT, bytes are missing. CANCELLED,
  // it was freed meanwhile. Abandoned then.
  absl::Status Finish(std::unique_ptr<Incoming> incoming);
  void Abandon(std::unique_ptr<Incoming> incoming);

  // `reader`, if not empty: the address of a store that is about to copy it, to
  // be named by Free. Errors: NOT_FOUND.
  absl::StatusOr<std::shared_ptr<const MemoryFile>> Find(
      absl::string_view id, const std::string& reader = "");

  // Whether an object is here, or coming: then waits until it is here or given
  // up, or `give_up` is true (asked now and then). False: it is not, and this
  // caller is the one to bring it, with Begin.
  bool Await(const std::string& id, const std::function<bool()>& give_up);
  // Ends what a false Await began, with what came of it.
  void Settle(const std::string& id);

  // Returns the stores that have copies of them.
  std::map<std::string, std::vector<std::string>> Free(
      const std::vector<std::string>& ids);
  void EndJob(absl::string_view job_id);

  int64_t objects() const;
  int64_t bytes() const;

 private:
  struct Object {
    std::string job_id;
    bool is_copy = false;
    uint64_t last_use = 0;
    std::shared_ptr<const MemoryFile> file;
    std::set<std::string> readers;
  };

  void MakeRoom(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_bytes_;
  const size_t max_objects_;

  mutable absl::Mutex mu_;
  std::map<std::string, Object, std::less<>> objects_ ABSL_GUARDED_BY(mu_);
  // Coming, with whether they were freed meanwhile.
  std::map<std::string, bool> incoming_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> awaited_ ABSL_GUARDED_BY(mu_);  // See Await.
  std::set<std::string, std::less<>> ended_jobs_ ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;  // With what was reserved.
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_OBJECT_TABLE_H_
