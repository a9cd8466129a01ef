// What a TorchTrainer is told.

#ifndef MINIRAY_TRAIN_FUNCTIONS_TRAINER_CONFIG_H_
#define MINIRAY_TRAIN_FUNCTIONS_TRAINER_CONFIG_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "train/callback.h"
#include "train/checkpoint_config.h"
#include "train/data/dataset.h"
#include "train/failure_config.h"
#include "train/functions/messages.h"

namespace miniray::train {

// How many workers: a number, or as many as there is room for between two.
struct NumWorkers {
  NumWorkers(int number) : min(number), max(number) {}  // NOLINT: converts
  NumWorkers(int min, int max) : min(min), max(max) {}

  int min;
  int max;
};

// How many workers there are, and what each of them has.
struct ScalingConfig {
  // Ranks, 4 or {2, 8}. Of the latter, each generation has as many as find room
  // when it begins: the least number is waited for, those beyond have a second.
  // While fewer than the most run, further ones wait for room, and the next
  // generation begins with them behind a report with a checkpoint.
  // 0: local mode, for debugging: the function runs as the only rank in this
  // process, in the thread that calls Fit, without a cluster.
  NumWorkers num_workers = 1;
  // Each worker has a GPU: as many as resources_per_worker says, or one.
  bool use_gpu = false;
  ResourceOptions resources_per_worker;
  // How the workers lie on the nodes. They get their places together, before
  // the first of them starts, and keep them until Fit returns.
  PlacementStrategy placement_strategy = PlacementStrategy::kPack;
  // How long to wait for places and processes.
  absl::Duration start_timeout = absl::Seconds(60);
};

// Where a run is kept, and what becomes of failures.
struct RunConfig {
  // The run's folder is `storage_path`/`name`, on the driver's machine; see
  // RunFolder. Without a name one is made up. Without a storage_path there is
  // no folder; checkpoints are then kept in the driver's memory, the last one,
  // for as long as Fit runs.
  std::string name;
  std::string storage_path;
  // The function says when there are checkpoints; `frequency` n leaves out all
  // but every nth report's (0: none is left out). `at_end` and `resume` must be
  // left as they are.
  CheckpointConfig checkpoint;
  // hang_timeout: without a report of some rank for so long, which must be
  // longer than the longest epoch, that rank has failed. policy: kGroup,
  // always.
  FailureConfig failure;
  // Goes on with the run of this name, from its last good checkpoint, if there
  // is one; else such a run is an error.
  bool resume = true;
  // From the moment when the first rank waits in a report until all do: finite.
  absl::Duration report_timeout = absl::Minutes(10);
  // How long a collective may take, the averaging of gradients above all, and
  // how long the first one waits for the other ranks: finite. Ranks that hang
  // are noticed by it; dead ones at once.
  absl::Duration collective_timeout = absl::Minutes(5);
  // How long the function has to return once the group is told to stop; a
  // worker whose function has not then is ended, and made anew.
  absl::Duration abort_timeout = absl::Seconds(5);
  // The head of the cluster is told of the training, for the dashboard and
  // others who watch, and what the run is called there; see
  // TrainerOptions::run_id. Empty: `name`, else that of the run's folder, else
  // one is made up. Not in local mode, which has no cluster.
  bool report = true;
  std::string run_id;
  // None of them null; of one training at a time. See Callback: an epoch is a
  // report. Not called: OnEpochStart, OnSync, OnEvaluation.
  std::vector<std::shared_ptr<Callback>> callbacks;
};

struct TorchTrainerOptions {
  Config config;  // For Context::config.
  // For Context::GetDatasetShard, by the names that it uses. Those made from
  // tensors must, together with rank 0's part of a checkpoint, have room in a
  // node's object store.
  std::map<std::string, Dataset> datasets;
  ScalingConfig scaling;
  RunConfig run;
  // A checkpoint's folder, of any run: what a run that has none of its own
  // begins from. Empty: nothing.
  std::string resume_from_checkpoint;
  // The cluster to use; without one, Fit connects with Cluster::Connect() and
  // leaves again. Is that an embedded cluster, it has room for all workers.
  std::optional<Cluster> cluster;
};

// INVALID_ARGUMENT with the field and what it may be.
absl::Status Validate(const TorchTrainerOptions& options);

// What each worker asks for.
ResourceOptions WorkerResources(const ScalingConfig& scaling);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_TRAINER_CONFIG_H_
