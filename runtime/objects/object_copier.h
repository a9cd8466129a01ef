// Brings copies of objects from other nodes' stores.

#ifndef MINIRAY_RUNTIME_OBJECTS_OBJECT_COPIER_H_
#define MINIRAY_RUNTIME_OBJECTS_OBJECT_COPIER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "runtime/objects/object_holds.h"
#include "runtime/objects/object_table.h"

namespace miniray {

// Thread-safe.
class ObjectCopier {
 public:
  struct Options {
    std::string token;
    std::string address;   // HOST:PORT of the store that the copies are for.
    std::string store_id;  // See v1.ObjectHolder.
    // After so long without a byte a peer is given up for the source.
    absl::Duration peer_patience = absl::Seconds(5);
  };
  // `table` outlives it.
  ObjectCopier(Options options, ObjectTable* table)
      : options_(std::move(options)), table_(table) {}

  // Copies an object from the store at `source`, or from where that advises;
  // goes on at the source where a peer left off. actor_id, if not empty: the
  // source is the process of an actor that keeps it, and the copy goes with the
  // job. Blocks. Errors: NOT_FOUND. UNAVAILABLE, the source does not answer.
  // Those of ObjectTable::Begin.
  absl::Status Bring(const std::string& id, const std::string& job_id,
                     const std::string& source, const std::string& actor_id,
                     const ObjectTable::GiveUp& give_up);

  // Sets `missing` to those of the copies `ids` that `source` has no more, and
  // of the objects in `held`, which this store goes on holding there. source:
  // as ObjectTable::ListCopies says. Blocks. Errors: UNAVAILABLE and
  // DEADLINE_EXCEEDED, it does not answer.
  absl::Status FindMissing(const std::string& source,
                           const std::vector<std::string>& ids,
                           const std::vector<ObjectClaim>& held,
                           std::vector<std::string>* missing) const;

  // Holds objects at the store `source`, for this one, or needs them there no
  // more: that is sent, and lapses by itself if it is lost. Hold blocks; its
  // errors are those of FindMissing.
  absl::Status Hold(const std::string& source,
                    const std::vector<ObjectClaim>& claims,
                    std::vector<std::string>* missing) const;
  void Release(const std::string& source,
               const std::vector<ObjectClaim>& claims) const;

  // Of copies, also of those that did not become complete.
  int64_t bytes_received() const { return bytes_received_; }

  // The connections that these three have used stay, but those to other stores
  // than `sources`.
  void Disconnect(const std::set<std::string>& sources)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Copy;
  struct Outcome;

  absl::Status AskActor(const std::string& address, const std::string& actor_id,
                        const std::vector<std::string>& ids,
                        std::vector<std::string>* missing) const;
  Outcome FetchFrom(const std::string& address, bool is_peer, Copy* copy);

  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& source) const
      ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  ObjectTable* const table_;
  std::atomic<int64_t> bytes_received_ = 0;
  mutable absl::Mutex mu_;
  mutable std::map<std::string, std::shared_ptr<grpc::Channel>> channels_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_OBJECT_COPIER_H_
