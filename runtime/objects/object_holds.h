// Who holds which objects, without gRPC: of those that were put into this
// store, the processes and stores that need them; of those in other stores, the
// processes of this node, for which this store holds them there.

#ifndef MINIRAY_RUNTIME_OBJECTS_OBJECT_HOLDS_H_
#define MINIRAY_RUNTIME_OBJECTS_OBJECT_HOLDS_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace miniray {

// See v1.ObjectHolder.
struct ObjectHolder {
  std::string owner;
  std::string job_id;
  std::string store_id;

  friend auto operator<=>(const ObjectHolder&, const ObjectHolder&) = default;
};

// See v1.ObjectClaim.
struct ObjectClaim {
  std::string object_id;
  int64_t turn = 0;
};

// Thread-safe.
class ObjectHolds {
 public:
  // Looks (AgeStores) without a word of a store, until it holds nothing here.
  static constexpr int kMaxAge = 20;

  // By the address of the store that the objects are in.
  using Claims = std::map<std::string, std::vector<ObjectClaim>>;
  // Objects that nobody holds any more.
  struct LetGo {
    std::vector<std::string> here;
    Claims elsewhere;  // To be given back there.
  };

  // An object comes to this store; `holder` is its first one, with turn 0. May
  // be called again. Errors: FAILED_PRECONDITION, the holder's process or job
  // has ended. INVALID_ARGUMENT.
  absl::Status Put(const std::string& id, const ObjectHolder& holder);
  // What was put is not here after all, or was freed whoever holds it.
  void Drop(const std::vector<std::string>& ids);
  // Of an object that was put here.
  bool IsHeld(const std::string& id) const;

  struct Wanted {
    ObjectClaim claim;
    std::string source;  // Empty: this store.
  };
  struct Answer {
    std::vector<std::string> missing;  // No longer here.
    // To be claimed there for this store; then Settle. Held already.
    Claims to_claim;
  };
  // `holder` needs objects from now on, until it lets go of the same or a later
  // turn. Errors: as Put. RESOURCE_EXHAUSTED, more than kMaxEntries.
  absl::StatusOr<Answer> Hold(const ObjectHolder& holder,
                              const std::vector<Wanted>& wanted);
  // What came of claims at `source`: all but `missing` are held there. Returns
  // those that nobody here wants any more, to be given back.
  std::vector<ObjectClaim> Settle(const std::string& source,
                                  const std::vector<ObjectClaim>& claims,
                                  const std::vector<std::string>& missing);

  LetGo Release(const ObjectHolder& holder,
                const std::vector<ObjectClaim>& claims);
  // What the job, or the process, holds; nothing of it is taken any more.
  LetGo EndJob(absl::string_view job_id);
  LetGo EndOwner(absl::string_view owner);
  // A job with the id of one that ended.
  void BeginJob(absl::string_view job_id);
  // Those that hold something.
  std::set<std::string> Jobs() const;

  // What is held in other stores for this node.
  Claims Elsewhere() const;
  // A store holds the claims still. Returns the ids that are not here.
  std::vector<std::string> Renew(const std::string& store_id,
                                 const std::vector<ObjectClaim>& claims);
  // To be called now and then: ends what stores hold that have been silent for
  // kMaxAge calls. Not a time: a machine that stood still would take its own
  // silence for theirs.
  LetGo AgeStores();

 private:
  struct Held {
    int64_t turn = 0;
    int age = 0;  // Of stores.
  };
  struct Entry {
    std::string source;  // Empty: this store.
    // Of an object elsewhere: this store's claim, and whether the source has
    // taken it.
    int64_t turn = 0;
    bool claimed = false;
    std::map<ObjectHolder, Held> holders;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  absl::Status CheckHolder(const ObjectHolder& holder) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LetGo EndIf(const std::function<bool(const ObjectHolder&, Held*)>& ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Entries::iterator LetGoOf(Entries::iterator it, LetGo* let_go)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  int64_t turns_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<std::string, std::less<>> ended_jobs_ ABSL_GUARDED_BY(mu_);
  std::set<std::string, std::less<>> ended_owners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_OBJECT_HOLDS_H_
