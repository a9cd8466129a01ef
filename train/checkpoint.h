// A checkpoint: all that a training needs to go on as if it had never stopped.
// On the disk it is a folder:
//
//   checkpoint_000012/       taken after 12 epochs
//     manifest.json          epochs, metrics, and of each other file its size
//                            and CRC-32C
//     history.jsonl          the epochs so far, as in the run's folder
//     server.state           the parameter server's, if there is one
//     worker_000/model.pt    what worker 0 gave, file by file
//     worker_000/training.pt
//     ...

#ifndef MINIRAY_TRAIN_CHECKPOINT_H_
#define MINIRAY_TRAIN_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/metrics.h"
#include "train/result.h"

namespace miniray::train {

// A worker's part of a checkpoint: the bytes of its files, by name.
using CheckpointFiles = std::map<std::string, std::string>;

struct Checkpoint {
  // Whether workers have trained since they were synchronised.
  bool needs_sync = false;
  std::vector<EpochResult> history;      // Of all epochs.
  std::optional<std::string> server;     // ParameterServer::ExportState.
  std::vector<CheckpointFiles> workers;  // By worker.

  // Trained so far.
  int epochs() const { return static_cast<int>(history.size()); }
};

// What is told of a checkpoint on the disk.
struct CheckpointInfo {
  std::string path;
  int epochs = 0;      // Trained before it was taken.
  Metrics metrics;     // Of the last of them.
  int64_t bytes = 0;   // Of its files.
  double seconds = 0;  // That writing took, in the background; 0: not known.
};

// "checkpoint_000012".
std::string CheckpointName(int epochs);
// The number in such a name; none if it is another.
std::optional<int> EpochsOfCheckpointName(const std::string& name);

// Writes the folder `path`, of which nothing may exist. It appears there whole
// and forced to the disk, whoever is killed: it is written as `path`.part
// before (what is there by that name is removed) and renamed then. After an
// error there is nothing by either name, unless that cannot be removed.
//
// Errors: INVALID_ARGUMENT, a worker's file has a name that cannot be. Of the
// system.
absl::StatusOr<CheckpointInfo> WriteCheckpoint(const std::string& path,
                                               const Checkpoint& checkpoint);

// INVALID_ARGUMENT, a worker's file has a name that cannot be.
absl::Status CheckFileNames(const Checkpoint& checkpoint);

// Errors: NOT_FOUND, there is none. DATA_LOSS, it is damaged, with the file.
// FAILED_PRECONDITION, it is of another version's format. RESOURCE_EXHAUSTED
// and others of the system, it cannot be read now, and may be whole.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path);

// What its manifest says; does not look at the files. Errors: as above.
absl::StatusOr<CheckpointInfo> DescribeCheckpoint(const std::string& path);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_CHECKPOINT_H_
