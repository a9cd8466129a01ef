// The part of every trainer that does not depend on the class of its workers:
// life cycle, epoch loop, hooks. Users derive from BaseTrainer or
// DataParallelTrainer.

#ifndef MINIRAY_TRAIN_TRAINER_BASE_H_
#define MINIRAY_TRAIN_TRAINER_BASE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "train/callback.h"
#include "train/checkpoint.h"
#include "train/checkpoint_store.h"
#include "train/metrics.h"
#include "train/options.h"
#include "train/result.h"
#include "train/run_folder.h"
#include "train/wait_for_start.h"

namespace miniray::train {

// Not thread-safe. Exceptions of hooks pass through Train; the actors then live
// until Shutdown or the destructor.
class TrainerBase {
 public:
  // Creates nothing yet.
  explicit TrainerBase(TrainerOptions options);
  TrainerBase(const TrainerBase&) = delete;
  TrainerBase& operator=(const TrainerBase&) = delete;
  virtual ~TrainerBase();

  // Starts the workers and trains. They stay alive afterwards, to be asked for
  // their weights, until Shutdown or the destructor.
  //
  // Order of the hooks: OnTrainStart; for each epoch OnEpochStart, TrainEpoch,
  // (OnSync,) OnEpochEnd; OnTrainEnd; each followed by that of the callbacks.
  // After an error no further hook runs but OnTrainEnd of the callbacks, and
  // everything is shut down.
  //
  // Errors: INVALID_ARGUMENT, options that cannot be (before anything is
  // created). DEADLINE_EXCEEDED, workers found no place within start_timeout.
  // FAILED_PRECONDITION, it has trained already and was not shut down. What
  // RunFolder::Create, Cluster::Connect and CreateWorker return. Else the error
  // of a worker (of the first that fails: Train does not wait for the others),
  // with the worker and, where it died, the cause, e.g. "epoch 4/50: worker 2
  // (GanWorker 'worker-2'): TrainEpoch: ... signal 9".
  absl::StatusOr<Result> Train(const RunOptions& run);

  // What the last Train has come to; after an error too, with the epochs before
  // it.
  const Result& last_result() const { return result_; }

  // Kills the workers, and leaves the cluster if the trainer connected itself.
  // Idempotent; Train may be called again afterwards.
  virtual void Shutdown();

  int num_workers() const { return options_.num_workers; }
  const TrainerOptions& options() const { return options_; }

 protected:
  // Trains one epoch on all workers; override it to do that differently. The
  // caller sets the result's `epoch`, `seconds`, `timing`, `synced` and `sync`.
  virtual absl::StatusOr<EpochResult> TrainEpoch(int epoch) = 0;

  virtual void OnTrainStart() {}
  virtual void OnEpochStart(int epoch) {}
  // Logs the epoch's metrics.
  virtual void OnEpochEnd(int epoch, const EpochResult& result);
  // A checkpoint is on the disk: between epochs, or before OnTrainEnd. It may
  // have been taken epochs ago.
  virtual void OnCheckpoint(const CheckpointInfo& info) {}
  virtual void OnTrainEnd(const Result& result) {}

  // Ends training after the epoch that runs, or has just ended: as if it were
  // the last of those asked for.
  void RequestStop() { context_.RequestStop(); }

  // Calls TrainEpoch of all workers and returns their metrics, by worker.
  // Errors: of the first worker that fails, as soon as it does.
  absl::StatusOr<std::vector<Metrics>> RunWorkers(int epoch);

  // RunWorkers, and the mean and range of the metrics.
  absl::StatusOr<EpochResult> RunAndAverage(int epoch);

  // REQUIRES: given in the options, or Train has begun.
  const Cluster& cluster() const;

  // Of the Train that runs.
  int epochs() const { return run_.epochs; }
  const Config& config() const { return run_.config; }

  // Options to create a worker with: a name ("worker-2", in a namespace of this
  // run) and TrainerOptions::worker_resources.
  ActorOptions WorkerOptions(int worker_id) const;

  // Workers by worker_id; empty before Train.
  const std::vector<AnyActorHandle>& worker_handles() const { return workers_; }

  // --- Between trainers, not for users ---

  // Waits for calls[i] to worker i, all of them; the first error, with the
  // worker and `method`, is returned at once. In an epoch, it is what `compute`
  // and `wait` of its timing count: to be called right after the calls.
  absl::Status AwaitWorkers(
      const std::vector<std::shared_ptr<miniray::internal::CallState>>& calls,
      absl::string_view method);

  // True if the workers may have trained since the last MarkSynced.
  bool needs_sync() const { return needs_sync_; }
  void MarkTrained() { needs_sync_ = true; }
  // A synchronisation, which began at `start`, is done.
  void MarkSynced(absl::Time start);
  int current_epoch() const { return current_epoch_; }
  // Tells the callbacks.
  void NotifySync(const ps::SyncResult& result);
  ActorOptions HelperOptions(absl::string_view name) const;

 private:
  virtual absl::StatusOr<AnyActorHandle> MakeWorker(int worker_id,
                                                    const Config& config) = 0;
  // Checks options before anything is created.
  virtual absl::Status CheckSetup() const { return absl::OkStatus(); }
  // Creates what the trainer itself needs; named in *actors, it is waited for
  // together with the workers.
  virtual absl::Status BeforeWorkers(NamedActors* actors) {
    return absl::OkStatus();
  }
  virtual absl::Status AfterWorkers() { return absl::OkStatus(); }
  virtual bool WorkersHaveCheckpoints() const = 0;
  // The parameter server's state, where there is one.
  virtual absl::Status SaveServer(std::optional<std::string>* state) {
    return absl::OkStatus();
  }
  virtual absl::Status LoadServer(const std::optional<std::string>& state) {
    return absl::OkStatus();
  }
  // Synchronises if it is time to; `last`: no epoch follows.
  virtual absl::Status Synchronize(int epoch, bool last, EpochResult* result) {
    return absl::OkStatus();
  }

  absl::Status Run();
  absl::Status RunEpochs();
  bool StoppedBySignal() const;
  // Puts into result_ what Train has come to, and tells the callbacks.
  void End(const absl::Status& status);
  absl::Status StartActors();
  absl::StatusOr<EpochResult> RunEpoch(int epoch);
  std::string EpochName(int epoch) const;

  // --- Checkpoints, in trainer_checkpoints.cc.

  // Makes the run folder and finds what is gone on with, before anything else.
  absl::Status OpenRun();
  // Sets resumed_ to what is gone on from, if there is anything.
  absl::Status FindCheckpoint(std::vector<std::string>* warnings);
  void CloseRun();
  // Whether one is due after so many epochs.
  bool CheckpointIsDue(int epochs, bool last) const;
  // Waits for the one that is being written, takes one and begins to write it.
  absl::Status TakeCheckpoint();
  absl::StatusOr<Checkpoint> Snapshot();
  // Makes it the state of workers, parameter server and history.
  absl::Status Restore(Checkpoint checkpoint);
  void NoteCheckpoint(const std::optional<CheckpointStore::Outcome>& outcome);

  const TrainerOptions options_;
  std::optional<Cluster> cluster_;
  std::string run_id_;
  RunOptions run_;
  std::vector<AnyActorHandle> workers_;
  bool started_ = false;
  bool needs_sync_ = false;
  int current_epoch_ = 0;
  Timing timing_;  // Not in a result yet.
  TrainContext context_;
  std::optional<absl::Time> train_start_;  // Once OnTrainStart has been called.
  // Those of the options, behind our own.
  std::vector<std::shared_ptr<Callback>> callbacks_;
  std::shared_ptr<RunFolder> run_folder_;   // Null without a storage_path.
  std::unique_ptr<CheckpointStore> store_;  // Null without checkpoints.
  std::optional<Checkpoint> resumed_;       // Until the workers have it.
  int checkpointed_epochs_ = 0;             // Of the last that was taken.
  Result result_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_TRAINER_BASE_H_
