// What a trainer is told.

#ifndef MINIRAY_TRAIN_OPTIONS_H_
#define MINIRAY_TRAIN_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ps/parameter_server.h"
#include "runtime/api/miniray.h"
#include "train/callback.h"
#include "train/checkpoint_config.h"
#include "train/failure_config.h"
#include "train/sharding.h"

namespace miniray::train {

// Settings by name, from Train to CreateWorker (and LoadDataShard, where it
// takes them):  MR_ASSIGN_OR_RETURN(double lr, config.GetDouble("lr", 0.01));
using Config = ps::OptionMap;

// How a trainer works; fixed for its life.
struct TrainerOptions {
  int num_workers = 4;
  // Above num_workers: training begins with as many workers as find a place,
  // num_workers at least and so many at most, grows after a synchronisation
  // when there is room for more, and goes on with fewer when workers are lost
  // whose places cannot be had again. 0: num_workers, always. Needs workers
  // with LoadDataShard, and FailureConfig::max_failures. See train/README.md.
  int max_workers = 0;
  // Of each worker; one CPU if not set. If the cluster has not enough free,
  // Train waits up to start_timeout.
  ResourceOptions worker_resources;
  // How the workers lie on the nodes. They get their places together, before
  // the first of them starts, and keep them until Shutdown.
  PlacementStrategy placement = PlacementStrategy::kPack;
  absl::Duration start_timeout = absl::Seconds(60);
  // The cluster to use; without one, the trainer connects with
  // Cluster::Connect() and leaves again when it shuts down. Is that an embedded
  // cluster, it has room for all workers, however few cores there are.
  std::optional<Cluster> cluster;
  // Where the run folder `storage_path`/`name` is made, on the driver's
  // machine; see RunFolder. Without a storage_path none is; without a name one
  // is made up. A name has no '/' and is not "." or "..".
  std::string storage_path;
  std::string name;
  // The head of the cluster is told of the training, for the dashboard and
  // others who watch; see ReportRun. It costs no step anything.
  bool report = true;
  // What it is called there: 1 to 128 letters, digits, '.', '_' and '-'. A
  // training of the same name that has ended is gone on with, or begun anew;
  // two at a time would be one to who watches. Empty: the name of the run
  // folder, else one is made up.
  std::string run_id;
  // In the run folder, which needs a storage_path, and workers that can
  // (SaveCheckpoint and LoadCheckpoint, see worker_contract.h).
  CheckpointConfig checkpoint;
  // What becomes of workers that fail: without it, the first failure ends
  // Train.
  FailureConfig failure;
  // None of them null; of one training at a time.
  std::vector<std::shared_ptr<Callback>> callbacks;

  // DataParallelTrainer only:
  // Which items a worker trains on. Workers then have LoadDataShard with a
  // Config, and call ShardingFromConfig (sharding.h), where they set labels for
  // kByClass, or the function for kFunction. Not set: their own choice, and
  // that of the config's "sharding" and "sharding_seed", which come before
  // these.
  std::optional<ShardMethod> sharding;
  uint64_t sharding_seed = 0;
  // Epochs from one synchronisation to the next. Larger is cheaper, and lets
  // the workers' models drift further apart.
  int sync_interval = 1;
  std::string sync_strategy = "average";  // See ps/strategies/.
  ps::StrategyOptions strategy_options;
  ps::ServerOptions server_options;
  // Steps from one synchronisation to the next within an epoch, which ends with
  // one in any case; 0: none within. Workers then have TrainSteps
  // (optional_methods.h), and sync_interval is 1.
  int64_t sync_every = 0;
  // With sync_every: the workers train the next steps while a synchronisation
  // runs, and add what it brings to what they have come to by then: one piece
  // of sync_every steps is the staleness. The end of an epoch waits. Workers
  // then have SnapshotWeights, ApplyWeights and LendWeights
  // (overlapped_weights.h makes them short). Not with FailurePolicy::kHeal, nor
  // with server_options that leave workers out or change what travels.
  bool overlap_sync = false;
  // Evaluates after every so many epochs and after the last; 0: never. Workers
  // then have EvaluateShard (optional_methods.h). See
  // DataParallelTrainer::Evaluate.
  int evaluate_every = 0;
  // So many further actors evaluate, while the workers train on; 0: the workers
  // do, and training waits. They are made by CreateWorker with the ids
  // num_workers, num_workers + 1, ... and worker_resources each, and get the
  // weights of the synchronisation, but no LoadDataShard.
  int num_evaluators = 0;
};

// One call of Train.
struct RunOptions {
  int epochs = 1;
  Config config;
};

// Whether the number of workers may change.
inline bool IsElastic(const TrainerOptions& options) {
  return options.max_workers > options.num_workers;
}

// The config as LoadDataShard gets it: with the options' sharding.
Config ConfigForData(const TrainerOptions& options, const Config& config);

// INVALID_ARGUMENT with the field and what it may be.
absl::Status Validate(const TrainerOptions& options);
absl::Status Validate(const RunOptions& options);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_OPTIONS_H_
