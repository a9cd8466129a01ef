// The actors in which the ranks of a train function run.

#ifndef MINIRAY_TRAIN_FUNCTIONS_WORKER_GROUP_H_
#define MINIRAY_TRAIN_FUNCTIONS_WORKER_GROUP_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "runtime/base/backoff.h"
#include "train/functions/messages.h"
#include "train/functions/trainer_config.h"
#include "train/functions/worker.h"
#include "train/worker_places.h"

namespace miniray::train {

// Not thread-safe.
class WorkerGroup {
 public:
  // cancelled: whoever waits asks it several times a second.
  WorkerGroup(Cluster cluster, ScalingConfig scaling,
              std::function<bool()> cancelled);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Makes the workers that there are not, or no more, and waits until all are
  // ready: the least number of them, and those beyond that find room.
  //
  // *is_final: set if the error is none that another try could mend (no places,
  // no nodes that could ever hold the workers). Errors: those of WorkerPlaces
  // and WaitForStart.
  absl::Status Start(bool* is_final);

  // Looks for room for further ranks, for the next Start, if there may be more;
  // to be called often, for it does so no more than once a second. One worker
  // waits for a place; once it has one, all that there may be are made. Does
  // not block while the head answers; errors are only in the log. REQUIRES:
  // Start has succeeded.
  void LookForRoom();
  // Whether Start would have more ranks now. If it seems so, asks the head, and
  // the further workers, for 2 s at most. REQUIRES: as above.
  bool CanGrow();

  // How the ranks lie on the nodes: fills in rank, world_size, local_rank,
  // local_world_size, node_rank and addresses. REQUIRES: Start has succeeded.
  // Errors: of the head.
  absl::StatusOr<std::vector<GenerationStart>> Places();

  // Ranks that there are. REQUIRES: Start has succeeded.
  int size() const { return size_; }
  // REQUIRES: Start has succeeded, and the worker was not ended since.
  const ActorHandle<TrainFunctionWorker>& worker(int rank) const {
    return *workers_[rank];
  }
  // "rank 1 (process 4711 on node-12ab)"; for errors.
  std::string NameOf(int rank) const;

  // Ends the worker's process, whatever it does; Start makes another. Waits
  // for the head, at most for start_timeout. Errors: it does not answer.
  absl::Status End(int rank);

  // Ends all, and gives their places back. Idempotent.
  void Shutdown();

 private:
  int least() const { return scaling_.num_workers.min; }
  int most() const { return scaling_.num_workers.max; }

  // Those that died when nobody called them. Errors: of the head.
  absl::Status ForgetDead();
  // In a place of its own if it is beyond the least number.
  absl::Status Make(int rank, const std::string& actor_namespace);
  // The first of them, without which there is no group.
  absl::Status StartLeast(const std::string& actor_namespace, bool* is_final);
  // Those beyond that find room; sets size_.
  absl::Status StartFurther(const std::string& actor_namespace);
  // grace: how long they may wait for a place.
  void AwaitFurther(absl::Duration grace);
  void TellSize(int before) const;
  // The worker behind the last rank, which waits for a place.
  void Scout();
  void AskForAll();
  // Ends those that do not answer; whether there are others.
  bool KeepAnswering(const std::vector<int>& ranks);

  const Cluster cluster_;
  const ScalingConfig scaling_;
  const ResourceOptions resources_;
  const std::function<bool()> cancelled_;
  WorkerPlaces places_;
  // As many as there may be. Behind the first size_: those that wait for room.
  std::vector<std::optional<ActorHandle<TrainFunctionWorker>>> workers_;
  std::vector<std::string> names_;  // By rank; empty if not known.
  int size_ = 0;

  // Of the look for room, since the last Start:
  absl::Time next_look_ = absl::InfinitePast();
  absl::Time next_scout_ = absl::InfinitePast();  // After one that died.
  Backoff scout_pauses_{absl::Seconds(1), absl::Minutes(1)};
  // There is room, and all that there may be were asked for then.
  std::optional<absl::Time> asked_for_all_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_WORKER_GROUP_H_
