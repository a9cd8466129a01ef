// The checkpoints in a run's folder: finds the last good one, writes new ones
// in the background, again and again where that fails, and removes those that
// nobody needs.

#ifndef MINIRAY_TRAIN_CHECKPOINT_STORE_H_
#define MINIRAY_TRAIN_CHECKPOINT_STORE_H_

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "train/checkpoint.h"
#include "train/checkpoint_config.h"
#include "train/result.h"

namespace miniray::train {

// Not thread-safe.
class CheckpointStore {
 public:
  // folder: the run's; nobody else writes there as long as this lives.
  // first_pause: between the first two tries to write one.
  CheckpointStore(std::string folder, CheckpointConfig config,
                  absl::Duration first_pause = absl::Milliseconds(200));
  ~CheckpointStore();  // Gives up what is not written.
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Returns the newest checkpoint that is whole; none if there are none at all.
  // Those that are damaged get a line in *warnings. Errors: DATA_LOSS, all are.
  // Those of ReadCheckpoint where one cannot be read now.
  // REQUIRES: none is being written.
  absl::StatusOr<std::optional<Checkpoint>> ReadLast(
      std::vector<std::string>* warnings) const;

  // Training goes on (or begins, with 0) with so many epochs: removes what
  // killed processes left half done, and gives later checkpoints, of epochs
  // that will be trained anew, the ending ".superseded" (".superseded.2" and so
  // on, where there is one of that epoch).
  // REQUIRES: none is being written.
  absl::Status BeginAt(int epochs, std::vector<std::string>* warnings);

  // Begins to write a checkpoint, which no other is of the same epoch, in
  // another thread; afterwards removes what is beyond num_to_keep. Where that
  // fails, it is tried again after ever longer pauses, up to 30 s, until it is
  // written or given up by one of the calls below. Each try is in the log.
  // REQUIRES: none is being written.
  void Write(Checkpoint checkpoint);
  bool writing() const { return writer_.joinable(); }

  // What has come of Write; none if there was none, or it goes on.
  struct Outcome {
    // An error tells how often it was tried, and why it was given up.
    absl::StatusOr<CheckpointInfo> written;
    std::vector<std::string> warnings;  // What could not be removed.
  };
  std::optional<Outcome> Poll() ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until it is written or given up. A pause ends at once; what fails
  // then is tried three times more, within 1.4 s and what the tries take.
  std::optional<Outcome> Wait() ABSL_LOCKS_EXCLUDED(mu_);
  // For a newer one: waits for a try that runs, and gives the checkpoint up if
  // that fails; in a pause, at once.
  std::optional<Outcome> MakeWay() ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks while a try runs. Whether the checkpoint is written then, or there
  // is none; Poll has what came of it. False: it is tried again later.
  bool AwaitTry() ABSL_LOCKS_EXCLUDED(mu_);

  // Sets the fields of the result that tell of checkpoints.
  // REQUIRES: none is being written.
  void Tell(Result* result) const;

 private:
  enum class State { kTries, kPauses, kEnded };
  enum class Urgency {
    kNone,
    kAwaited,  // By Wait.
    kGivenUp,  // No further try.
  };

  std::string PathOf(int epochs) const;
  // The best first, with a score_metric; else the newest.
  std::vector<CheckpointInfo> ByWorth() const;
  // All of what the thread does.
  void Run(const Checkpoint& checkpoint) ABSL_LOCKS_EXCLUDED(mu_);
  // Until `pause` is over or the urgency is not `before` any more; returns it.
  Urgency Pause(absl::Duration pause, Urgency before) ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<Outcome> Finish(Urgency urgency) ABSL_LOCKS_EXCLUDED(mu_);
  void Prune(std::vector<std::string>* warnings);

  const std::string folder_;
  const CheckpointConfig config_;
  const absl::Duration first_pause_;
  std::thread writer_;  // Has what follows to itself while it runs.
  std::vector<CheckpointInfo> kept_;  // By epochs.
  std::optional<Outcome> outcome_;

  absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kEnded;
  Urgency urgency_ ABSL_GUARDED_BY(mu_) = Urgency::kNone;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_CHECKPOINT_STORE_H_
