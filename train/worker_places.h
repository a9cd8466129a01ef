// Room for all workers of a training, reserved together or not at all.

#ifndef MINIRAY_TRAIN_WORKER_PLACES_H_
#define MINIRAY_TRAIN_WORKER_PLACES_H_

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"

namespace miniray::train {

// A placement group with a bundle for each worker. Not thread-safe.
class WorkerPlaces {
 public:
  // Asks for `num_workers` times `worker`, unless there is room already or a
  // worker needs none; does not wait. name: for people.
  absl::Status Reserve(const Cluster& cluster, int num_workers,
                       const ResourceOptions& worker,
                       PlacementStrategy strategy, const std::string& name);

  // Puts an actor into the place of this worker; leaves it alone where none is
  // reserved for it.
  void Place(int worker_id, ActorOptions* options) const;

  // To be called once all workers have been created: blocks until all places
  // are there. If none of them has been asked for with Place, the workers have
  // places of their own, and these are given back.
  //
  // begin: what `timeout` counts from. cancelled: asked several times a second.
  // Errors: DEADLINE_EXCEEDED, with what is asked for and what nodes have.
  // FAILED_PRECONDITION, no nodes could ever hold it; with the same. After
  // these two nothing is reserved any more. UNAVAILABLE, the head does not
  // answer. CANCELLED.
  absl::Status Await(absl::Time begin, absl::Duration timeout,
                     absl::FunctionRef<bool()> cancelled);

  // Ends the actors in them. Idempotent.
  void Release();

 private:
  int num_places_ = 0;
  std::optional<PlacementGroup> group_;
  mutable bool used_ = false;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_WORKER_PLACES_H_
