// Values that lie elsewhere: puts them into a node's object store, keeps them
// from being freed, and fetches them from a store or from the actor that made
// them.

#ifndef MINIRAY_RUNTIME_CLIENT_OBJECT_CLIENT_H_
#define MINIRAY_RUNTIME_CLIENT_OBJECT_CLIENT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/object.pb.h"
#include "proto/value.pb.h"
#include "runtime/client/call_state.h"
#include "runtime/client/channel_pool.h"

namespace miniray {
namespace internal {

// Thread-safe. Held by shared_ptr.
class ObjectClient : public std::enable_shared_from_this<ObjectClient> {
 public:
  struct Options {
    std::string token;
    // With which goes what this process puts, whichever ends first. See
    // v1.ObjectChunk.
    std::string job_id;
    std::string owner;
    // HOST:PORT of the store of the node that this process belongs to; empty in
    // a driver, which looks for one.
    std::string local_store;
    std::shared_ptr<ChannelPool> channels;
    // How long an actor that lives, as the head says, may be out of reach.
    absl::Duration reconnect_timeout = absl::Seconds(60);
    // Of the head.
    std::function<absl::StatusOr<std::vector<v1::NodeInfo>>()> nodes;
    // The actor's record; of this process of it if that is known.
    std::function<absl::StatusOr<v1::ActorInfo>(const std::string& actor_id,
                                                int32_t incarnation,
                                                absl::Duration timeout)>
        actor;
  };

  explicit ObjectClient(Options options) : options_(std::move(options)) {}

  // Hands a serialized Value over once, to this machine's node if there is one.
  // Returns a serialized Value that refers to it, and what holds the object
  // until its last copy is gone. Errors: UNAVAILABLE, no node.
  // RESOURCE_EXHAUSTED, the store is full.
  absl::StatusOr<absl::Cord> Put(const absl::Cord& value,
                                 std::shared_ptr<void>* hold)
      ABSL_LOCKS_EXCLUDED(mu_);

  // For references that were passed to this process: what holds each one's
  // object until its last copy is gone, one for all references of the process
  // to the same object. Null where the object stayed with an actor, which this
  // process cannot hold. All that are new are told to a store in one message;
  // blocks. One that was freed before, or whose store does not answer, is no
  // error: Fetch tells.
  std::vector<std::shared_ptr<void>> Hold(
      const std::vector<absl::Cord>& references) ABSL_LOCKS_EXCLUDED(mu_);

  // The same for one, without blocking: `done` gets what holds it once the
  // store knows, or has failed to answer, in the background thread; or at once.
  void HoldSoon(const absl::Cord& reference,
                std::function<void(std::shared_ptr<void>)> done)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The Value that a serialized Value refers to; alone: see ObjectFetcher. A
  // link to an actor that breaks is made again, and what has come stays.
  // Errors: NOT_FOUND, it was freed. UNAVAILABLE, the process or node that held
  // it is gone or does not answer. DEADLINE_EXCEEDED.
  absl::StatusOr<FetchedValue> Fetch(const absl::Cord& reference,
                                     absl::Duration timeout, bool alone);

  // Nothing is asked of the head or of actors any more.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<std::string> FindStore() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Upload(const std::string& store, const std::string& id,
                      const absl::Cord& value);
  // To a store on this machine: what is handed over is memory. Errors:
  // FAILED_PRECONDITION, it is not on this machine.
  absl::Status HandOver(const std::string& store, const std::string& id,
                        const absl::Cord& value);
  absl::StatusOr<FetchedValue> FetchFromActor(const v1::ObjectRefValue& object,
                                              absl::Time deadline, bool alone);
  absl::StatusOr<FetchedValue> FetchFromStore(const v1::ObjectRefValue& object,
                                              absl::Time deadline);
  // Maps it from `store`, which is on this machine and brings it from where the
  // request says if need be. Errors: FAILED_PRECONDITION, it is not on this
  // machine.
  absl::StatusOr<absl::Cord> MapFromStore(const std::string& store,
                                          v1::LocateObjectRequest request,
                                          int64_t size, absl::Time deadline);

  // What this process holds: one for each object, as long as anything refers to
  // it.
  class Held;
  using Holds = std::vector<std::shared_ptr<Held>>;
  // The store that this process tells what it holds of `object`.
  const std::string& StoreFor(const v1::ObjectRefValue& object) const;
  // One that nobody knows of yet.
  std::shared_ptr<Held> NewHeld(const v1::ObjectRefValue& object)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Registers holds at `store`.
  void Register(const std::string& store, const Holds& holds);
  // Its last reference is gone. Those that go at the same time are told
  // together.
  void LetGo(const std::string& store, v1::ObjectClaim claim)
      ABSL_LOCKS_EXCLUDED(mu_);
  void SendReleases() ABSL_LOCKS_EXCLUDED(mu_);
  void Release(const std::string& store,
               std::shared_ptr<v1::ReleaseObjectsRequest> request, int tries);
  void SetHolder(v1::ObjectHolder* holder) const;
  bool closed() const ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::string store_ ABSL_GUARDED_BY(mu_);  // That Put uses; found once.
  std::map<std::string, std::weak_ptr<Held>> held_ ABSL_GUARDED_BY(mu_);
  int64_t turns_ ABSL_GUARDED_BY(mu_) = 0;  // See v1.ObjectClaim.
  // By store; to be sent.
  std::map<std::string, std::vector<v1::ObjectClaim>> releases_
      ABSL_GUARDED_BY(mu_);
};

// True for a serialized Value that refers to one that lies elsewhere.
bool IsReference(const absl::Cord& value);

// A serialized Value that refers to `object`.
absl::Cord EncodeReference(const v1::ObjectRefValue& object);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_OBJECT_CLIENT_H_
