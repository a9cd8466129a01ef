// The objects of a store, without gRPC: which there are, which are coming, how
// much they take, and which stores have copies. (Who needs them:
// object_holds.h.)
//
// Objects lie in memory as long as there is room. Then those least recently
// used leave it: copies of what other stores have are dropped, the rest is
// written to the spill folder and read back when it is wanted. What is being
// sent stays in memory; who has an object mapped keeps it by that.

#ifndef MINIRAY_RUNTIME_OBJECTS_OBJECT_TABLE_H_
#define MINIRAY_RUNTIME_OBJECTS_OBJECT_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "runtime/objects/memory_file.h"
#include "runtime/objects/spill_folder.h"

namespace miniray {

// Thread-safe.
class ObjectTable {
 public:
  struct Options {
    int64_t max_bytes = 0;  // In memory.
    size_t max_objects = 0;
    std::unique_ptr<SpillFolder> spill;  // Null: nothing is spilled.
    // Stores that one object is sent to at once, if they can get it from each
    // other.
    int max_children = 1;
    // How long to wait for memory that is in use at the moment.
    absl::Duration patience = absl::Seconds(10);
  };
  explicit ObjectTable(Options options) : options_(std::move(options)) {}

  // Says, now and then, whether the caller has no use for the result any more.
  using GiveUp = std::function<bool()>;

  // What is known of an object that is about to come.
  struct Arrival {
    std::string id;
    int64_t total_bytes = 0;
    // Of a copy: who has it as well, HOST:PORT of a store, or
    // HOST:PORT/ACTOR_ID of an actor's process; then with the job that it was
    // brought for.
    std::string source;
    std::string job_id;
  };
  // Room for it. Given back by Abandon or kept by Finish.
  struct Incoming {
    Arrival arrival;
    std::shared_ptr<MemoryFile> file;
  };

  // Reserves room; others make way. Errors: RESOURCE_EXHAUSTED, it does not
  // fit. ALREADY_EXISTS, it is here, or coming. INVALID_ARGUMENT. CANCELLED,
  // given up.
  absl::StatusOr<std::unique_ptr<Incoming>> Begin(Arrival arrival,
                                                  const GiveUp& give_up);
  // Takes a file that is complete. Errors: as Begin.
  absl::Status Adopt(Arrival arrival, std::shared_ptr<MemoryFile> file,
                     const GiveUp& give_up);
  // The object is here. Errors: INVALID_ARGUMENT, bytes are missing. CANCELLED,
  // it was freed meanwhile. Abandoned then.
  absl::Status Finish(std::unique_ptr<Incoming> incoming);
  void Abandon(std::unique_ptr<Incoming> incoming);

  // The object in memory; read back if it was spilled. Errors: NOT_FOUND.
  // RESOURCE_EXHAUSTED. CANCELLED, given up.
  absl::StatusOr<std::shared_ptr<const MemoryFile>> FindInMemory(
      const std::string& id, const GiveUp& give_up);

  // Who wants to read an object from afar.
  struct Reader {
    // Of a store that makes a copy, to be named by Free; else empty.
    std::string store_address;
    // Takes a copy that is still incomplete; never sent on.
    bool from_copy = false;
    // Stores that it was sent to in vain.
    std::vector<std::string> failed_peers;
  };
  // Where to read it: one of the three.
  struct Source {
    std::shared_ptr<const MemoryFile> memory;  // Perhaps not complete.
    std::shared_ptr<const SpillFile> disk;
    std::string peer_address;  // Another store.
    int64_t size = 0;
    std::shared_ptr<const void> turn;  // Held while it is being sent.
  };
  // Errors: NOT_FOUND.
  absl::StatusOr<Source> FindSource(const std::string& id,
                                    const Reader& reader);

  // Whether an object is here, or coming: then waits until it is here or given
  // up. False: it is not, and this caller is the one to bring it, with Begin.
  bool Await(const std::string& id, const GiveUp& give_up);
  // Ends what a false Await began, with what came of it.
  void Settle(const std::string& id);

  // Stores that have copies of what was freed, with its ids.
  using Copies = std::map<std::string, std::vector<std::string>>;
  Copies Free(const std::vector<std::string>& ids);
  // Frees the copies of actors' results that were brought for the job.
  Copies EndJob(absl::string_view job_id);
  // Those that there are such copies for.
  std::set<std::string> Jobs() const;

  // The copies that are here, by the stores that they are from.
  Copies ListCopies() const;
  // Those of `ids` that are not here; of the others, `reader` has copies.
  std::vector<std::string> Missing(const std::vector<std::string>& ids,
                                   const std::string& reader);

  struct Stats {
    int64_t objects = 0;
    int64_t bytes = 0;  // In memory, with what was reserved.
    int64_t spilled_objects = 0;
    int64_t spilled_bytes = 0;  // On disk.
  };
  Stats stats() const;

 private:
  struct Object {
    std::string job_id;
    std::string source;
    int64_t size = 0;
    uint64_t last_use = 0;
    std::shared_ptr<const MemoryFile> memory;
    std::shared_ptr<const SpillFile> disk;  // Stays when it is read back.
    bool moving = false;  // To disk or back, by a thread without the lock.
    std::set<std::string> readers;
    // The readers of late, in order: each may get it from the one before.
    std::vector<std::string> chain;
    std::shared_ptr<char> sending = std::make_shared<char>();
  };
  using Objects = std::map<std::string, Object, std::less<>>;
  struct Coming {
    std::shared_ptr<const MemoryFile> file;
    bool freed = false;  // Meanwhile.
  };

  absl::Status CheckArrival(const Arrival& arrival) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Insert(const Arrival& arrival, std::shared_ptr<const MemoryFile> file)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Use(Objects::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(Objects::iterator it, Copies* copies)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string PeerFor(const Reader& reader, Object* object)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // object_room.cc. All may release the lock for a while.
  absl::Status Reserve(int64_t bytes, const GiveUp& give_up)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Spill(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Restore(const std::string& id, const GiveUp& give_up)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of those in memory that may leave it, the least recently used.
  Objects::iterator Oldest(bool copies_only) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LeaveMemory(Objects::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LeaveDisk(Object* object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MemoryIsInUse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status NoRoom(int64_t bytes, const absl::Status& why) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;

  mutable absl::Mutex mu_;
  absl::CondVar changed_;
  Objects objects_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::string> in_memory_ ABSL_GUARDED_BY(mu_);  // By use.
  std::map<std::string, Coming> incoming_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> awaited_ ABSL_GUARDED_BY(mu_);  // See Await.
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t spilled_objects_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t spilled_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_OBJECT_TABLE_H_
