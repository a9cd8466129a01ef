// RendezvousStore: the actor through which the ranks of a worker group find
// each other. A table of keys and values that callers may wait for.
//
//   MR_ASSIGN_OR_RETURN(auto store, cluster.CreateActor<RendezvousStore>(
//                                       RendezvousStore::Options(world_size)));
//   // Pass `store` to the workers; each calls ProcessGroup::Start(store).
//
// A trainer makes one per worker group and generation, and kills it when that
// generation ends: who still waits gets UNAVAILABLE at once, and no key of an
// old generation is ever seen by a new one. Ranks of one generation that make
// several process groups give each a name (ProcessGroup::Options::name).
//
// It is what LibTorch's TCPStore is, without a port that anybody would have to
// choose, and it needs no LibTorch. Thread-safe; waits block in the actor, in a
// concurrency group of their own, and poll nothing.

#ifndef MINIRAY_TRAIN_COLLECTIVE_RENDEZVOUS_STORE_H_
#define MINIRAY_TRAIN_COLLECTIVE_RENDEZVOUS_STORE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "runtime/api/miniray.h"

namespace miniray::train {

class RendezvousStore {
 public:
  // How the actor is to be created for `world_size` ranks: it asks for no CPU,
  // and as many as two waits of each rank block at a time.
  static ActorOptions Options(int world_size);

  // Sets `key`, whether it exists or not, and wakes who waits for it.
  void Set(const std::string& key, const std::string& value)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Waits as Wait does, then returns the value of `key`.
  absl::StatusOr<std::string> Get(const std::string& key, int64_t timeout_ms)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Sets `key` to `desired` if its value is `expected`, or if it does not exist
  // and `expected` is empty. Returns the value that it has then; of a key that
  // still does not exist, `expected`, as LibTorch's stores do.
  std::string CompareSet(const std::string& key, const std::string& expected,
                         const std::string& desired) ABSL_LOCKS_EXCLUDED(mu_);

  // Adds `amount` to the number that `key` holds in decimal (0 if it does not
  // exist) and returns the sum. Errors: INVALID_ARGUMENT, it holds something
  // else.
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount)
      ABSL_LOCKS_EXCLUDED(mu_);

  // True if `key` existed.
  bool Delete(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);

  int64_t NumKeys() const ABSL_LOCKS_EXCLUDED(mu_);

  // True if all `keys` exist.
  bool Check(const std::vector<std::string>& keys) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until all `keys` exist. Errors: DEADLINE_EXCEEDED after `timeout_ms`
  // milliseconds, with the keys that are missing.
  absl::Status Wait(const std::vector<std::string>& keys, int64_t timeout_ms)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Those of `keys` that do not exist.
  std::vector<std::string> Missing(const std::vector<std::string>& keys) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  absl::Status WaitLocked(const std::vector<std::string>& keys,
                          int64_t timeout_ms) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
};

MINIRAY_ACTOR(RendezvousStore, Constructor<>, &RendezvousStore::Set,
              &RendezvousStore::Get, &RendezvousStore::CompareSet,
              &RendezvousStore::Add, &RendezvousStore::Delete,
              &RendezvousStore::NumKeys, &RendezvousStore::Check,
              &RendezvousStore::Wait);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_COLLECTIVE_RENDEZVOUS_STORE_H_
