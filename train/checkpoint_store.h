// The checkpoints in a run's folder: finds the last good one, writes new ones
// in the background, and removes those that nobody needs.

#ifndef MINIRAY_TRAIN_CHECKPOINT_STORE_H_
#define MINIRAY_TRAIN_CHECKPOINT_STORE_H_

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/checkpoint.h"
#include "train/checkpoint_config.h"

namespace miniray::train {

// Ends the names of checkpoints that are set aside.
inline constexpr char kSuperseded[] = ".superseded";

// Not thread-safe.
class CheckpointStore {
 public:
  // folder: the run's; nobody else writes there as long as this lives.
  CheckpointStore(std::string folder, CheckpointConfig config);
  ~CheckpointStore();
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
  // that will be trained anew, the ending kSuperseded.
  // REQUIRES: none is being written.
  absl::Status BeginAt(int epochs, std::vector<std::string>* warnings);

  // Begins to write a checkpoint, which no other is of the same epoch, in
  // another thread; afterwards removes what is beyond num_to_keep.
  // REQUIRES: none is being written.
  void Write(Checkpoint checkpoint);
  bool writing() const { return writer_.joinable(); }

  // What has come of Write; none if there was none, or it goes on.
  struct Outcome {
    absl::StatusOr<CheckpointInfo> written;
    std::vector<std::string> warnings;  // What could not be removed.
  };
  std::optional<Outcome> Poll();
  std::optional<Outcome> Wait();

  // Paths; empty if there is none. REQUIRES: none is being written.
  std::string last() const;
  std::string best() const;

 private:
  std::string PathOf(int epochs) const;
  const CheckpointInfo* Best() const;
  void WriteAndPrune(const Checkpoint& checkpoint);
  void Prune(std::vector<std::string>* warnings);

  const std::string folder_;
  const CheckpointConfig config_;
  std::thread writer_;  // Has what follows to itself while it runs.
  std::vector<CheckpointInfo> kept_;  // By epochs.
  std::optional<Outcome> outcome_;
  std::atomic<bool> done_ = false;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_CHECKPOINT_STORE_H_
