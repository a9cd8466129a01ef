// The part of every trainer that does not depend on the class of its workers:
// life cycle, epoch loop, hooks. Users derive from BaseTrainer or
// DataParallelTrainer.

#ifndef MINIRAY_TRAIN_TRAINER_BASE_H_
#define MINIRAY_TRAIN_TRAINER_BASE_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "runtime/base/backoff.h"
#include "train/callback.h"
#include "train/checkpoint.h"
#include "train/checkpoint_store.h"
#include "train/hang_watch.h"
#include "train/metrics.h"
#include "train/options.h"
#include "train/result.h"
#include "train/run_folder.h"
#include "train/wait_for_start.h"
#include "train/worker_places.h"

namespace miniray::train {

class ReportRun;

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
  // Failures: see FailureConfig. Where all workers are made anew, OnTrainStart
  // of the trainer runs again (that of the callbacks does not), and the hooks
  // of the epochs that are trained again do.
  //
  // Errors: INVALID_ARGUMENT, options that cannot be (before anything is
  // created). DEADLINE_EXCEEDED, workers found no place within start_timeout.
  // FAILED_PRECONDITION, no nodes could ever hold the workers, or it has
  // trained already and was not shut down. What
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

  // With max_workers: as many as there are now, at least
  // TrainerOptions::num_workers.
  int num_workers() const {
    return std::max(options_.num_workers, static_cast<int>(workers_.size()));
  }
  const TrainerOptions& options() const { return options_; }

 protected:
  // Trains one epoch on all workers; override it to do that differently. The
  // caller sets the result's `epoch`, `seconds`, `timing`, `synced` and `sync`.
  virtual absl::StatusOr<EpochResult> TrainEpoch(int epoch) = 0;

  virtual void OnTrainStart() {}
  // After OnTrainStart, where training goes on from a checkpoint; or begins
  // anew after a failure, without one: then the history is empty.
  virtual void OnResume(const std::vector<EpochResult>& history) {}
  virtual void OnEpochStart(int epoch) {}
  // A worker has failed, and is not made anew yet; or, with failure.fatal,
  // training ends with it.
  virtual void OnWorkerFailure(const WorkerFailure& failure) {}
  // Logs the epoch's metrics.
  virtual void OnEpochEnd(int epoch, const EpochResult& result);
  // An evaluation beside training is done, of an epoch that has ended: now it
  // is in its metrics. Between epochs, behind the synchronisation of one that
  // is evaluated next, or before OnTrainEnd.
  virtual void OnEvaluation(int epoch, const EpochResult& result);
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

  // Shows a PNG of 2 MiB at most to who watches the run, and puts it into the
  // run folder, for TensorBoard; without effect where there is neither. Call it
  // from the hooks. epoch: that it was made in or behind. width, height:
  // pixels.
  void ReportImage(const std::string& name, int epoch, std::string png,
                   int width, int height);

  // RunWorkers, and the mean and range of the metrics.
  absl::StatusOr<EpochResult> RunAndAverage(int epoch);

  // REQUIRES: given in the options, or Train has begun.
  const Cluster& cluster() const;

  // Of the Train that runs.
  int epochs() const { return run_.epochs; }
  const Config& config() const { return run_.config; }

  // Options to create a worker with: a name ("worker-2", in a namespace of this
  // run), TrainerOptions::worker_resources, and its place among those that are
  // reserved for all workers. Who asks for other resources or a node of its own
  // clears placement_group and bundle_index.
  ActorOptions WorkerOptions(int worker_id) const;

  // Workers by worker_id; empty before Train.
  const std::vector<AnyActorHandle>& worker_handles() const { return workers_; }

  // --- Between trainers, not for users ---

  using Call = std::shared_ptr<miniray::internal::CallState>;
  // Makes a call to this worker.
  using CallWorker = std::function<Call(int worker_id)>;

  // Waits for calls[i] to worker i, all of them (null: there is none); the
  // first error, with the worker and `method`, is returned at once. In an
  // epoch, it is what `compute` and `wait` of its timing count: to be called
  // right after the calls.
  //
  // again: with FailurePolicy::kHeal, a worker that fails in an epoch is made
  // anew and called again, and training goes on. May be null.
  absl::Status AwaitWorkers(std::vector<Call> calls, absl::string_view method,
                            const CallWorker& again = nullptr);
  // Makes the call to all workers and awaits it so.
  absl::Status CallAndAwait(absl::string_view method, const CallWorker& call);

  // Waits for a call to the parameter server, at most for hang_timeout.
  absl::Status AwaitServer(const Call& call) const;

  // After a synchronisation has failed: makes those workers anew that are lost
  // (kHeal), so that it can be done once more. Returns false if there are none
  // or it is not to be done: then `error` stands, in which the lost are named.
  absl::StatusOr<bool> HealLost(absl::Status* error);

  // Makes a call to the head until it answers, at most for start_timeout; only
  // once where no workers are made anew. Errors: of the call; CANCELLED, a
  // signal asks for the end.
  absl::Status UntilHeadAnswers(absl::FunctionRef<absl::Status()> call) const;

  // Whether all workers have been made anew since Train began.
  bool made_anew() const { return num_regroups_ > 0; }

  // True if the workers may have trained since the last MarkSynced.
  bool needs_sync() const { return needs_sync_; }
  void MarkTrained() { needs_sync_ = true; }
  // A synchronisation is done, which began at `start` or was waited for since.
  void MarkSynced(absl::Time start);
  // CallAndAwait of what belongs to a synchronisation, as which its time
  // counts.
  absl::Status CallForSync(absl::string_view method, const CallWorker& call);
  int current_epoch() const { return current_epoch_; }
  // A signal asks for the end; see CheckpointConfig::on_signal.
  bool StoppedBySignal() const;
  // An evaluation beside training has these metrics, "eval/..." already: puts
  // them into the result of its epoch, which has ended, and tells the hooks.
  void AddEvaluation(int epoch, const Metrics& metrics);
  // Tells the callbacks.
  void NotifySync(const ps::SyncResult& result);
  ActorOptions HelperOptions(absl::string_view name) const;
  // What CreateWorker has returned; an error names `name`.
  static absl::StatusOr<AnyActorHandle> CheckCreated(
      absl::string_view name, absl::StatusOr<AnyActorHandle> actor);

 private:
  virtual absl::StatusOr<AnyActorHandle> MakeWorker(int worker_id,
                                                    const Config& config) = 0;
  // Checks options before anything is created.
  virtual absl::Status CheckSetup() const;
  // Creates what the trainer itself needs; named in *actors, it is waited for
  // together with the workers.
  virtual absl::Status BeforeWorkers(NamedActors* actors) {
    return absl::OkStatus();
  }
  virtual absl::Status AfterWorkers() { return absl::OkStatus(); }
  // A worker has been made in the place of a lost one: the same for it alone.
  virtual absl::Status AfterReplacement(int worker_id) {
    return absl::OkStatus();
  }
  // The workers from this number on are new, and all have their share of the
  // data to get, which are dealt anew.
  virtual absl::Status AfterGrowth(int first_new) { return absl::OkStatus(); }
  // The workers are the first so many that MakeWorker has made last.
  virtual void SetNumWorkers(int num_workers) = 0;
  // What the workers have to tell of an epoch besides metrics.
  virtual absl::Status CollectNotes(EpochResult* result) = 0;
  virtual bool WorkersHaveProgress() const = 0;
  virtual bool WorkersHaveCheckpoints() const = 0;
  // What a run of it is called: "DataParallelTrainer".
  virtual const char* Kind() const { return "BaseTrainer"; }
  // The parameter server, where there is one.
  virtual AnyActorHandle ServerHandle() const { return AnyActorHandle(); }
  // Its state.
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

  // AddEvaluation of what has come of an evaluation beside training. wait:
  // until the one that runs is done.
  virtual absl::Status CollectEvaluation(bool wait) { return absl::OkStatus(); }

  absl::Status Run();
  // From here on the head is told of the training, if it is to be.
  void BeginReport();
  // It is told how far these workers are, too.
  void WatchWorkers();
  // Makes the workers, and gives them the state that is gone on with.
  // anew: they take the place of others.
  absl::Status Begin(std::optional<Checkpoint> checkpoint, bool anew);
  absl::Status RunEpochs();
  // How many are trained in all: fewer than asked for once a stop is. `epochs`:
  // if it is asked for now.
  int EpochsToTrain(int epochs);
  // Puts into result_ what Train has come to, and tells the callbacks.
  void End(const absl::Status& status);
  absl::Status StartActors();
  // Checks what MakeWorker returns, too.
  absl::StatusOr<AnyActorHandle> CreateCheckedWorker(int worker_id);
  // Those that could be killed are gone from workers_ then; it stops at the
  // first that could not. Errors: of the head, which does not answer.
  absl::Status KillWorkers();
  absl::Status KillWorker(size_t worker) const;
  // Errors: of the head, which does not answer; with the name.
  absl::Status EndActor(const AnyActorHandle& actor,
                        const std::string& name) const;
  absl::StatusOr<EpochResult> RunEpoch(int epoch);
  std::string EpochName(int epoch) const;

  // --- Growth, in trainer_growth.cc.

  // Between epochs: takes further workers in, if there is a place.
  absl::Status Grow();
  // Makes the newcomers up to max_workers, takes in those that find a place,
  // and keeps one that waits for it. Returns how many came.
  int TakeInNewcomers();
  // So that there are `count` newcomers.
  absl::Status Recruit(int count);
  // Back to so many workers: one of the others failed with this error when the
  // data were dealt.
  absl::Status LeaveOut(int num_workers, const absl::Status& error);
  // Errors: of the head, which does not answer.
  absl::Status EndNewcomers();
  // Until each has started or waits for a place.
  void AwaitNewcomers();
  // The number of workers is another.
  void NoteNumWorkers();
  // False if the head does not say.
  bool WaitsForPlace(const AnyActorHandle& actor) const;

  // --- Calls, in trainer_calls.cc.

  // Until all calls that are not done yet are, or one fails or hangs: *failed.
  absl::Status AwaitUntilFailure(const std::vector<Call>& calls,
                                 absl::string_view method, HangWatch* watch,
                                 std::vector<bool>* done, size_t* failed,
                                 absl::FunctionRef<void()> on_done);
  // Workers that make no progress, and for how long.
  void WarnOfStalled(
      absl::string_view method,
      const std::vector<std::pair<size_t, absl::Duration>>& stalled) const;
  // Puts in the place of *failed and `error` another call's that is the cause,
  // if that comes soon.
  absl::Status FindCause(const std::vector<Call>& calls,
                         absl::string_view method,
                         const std::vector<bool>& done, size_t* failed,
                         absl::Status error) const;

  // --- Failures, in trainer_failures.cc.

  // Begin and RunEpochs, until training ends or no more failures are borne.
  absl::Status RunAndRecover();
  // Makes all anew, in the state of the last checkpoint.
  absl::Status Regroup();
  // Makes one worker anew. Errors: `error`, if no more are borne; of the
  // attempt.
  absl::Status Heal(size_t worker, const absl::Status& error);
  absl::Status Replace(size_t worker);
  // Notes a failure and tells the hooks; false: Train ends with it.
  bool BearFailure(int worker_id, const absl::Status& error);
  // Workers that are dead or, if asked to be found, do not answer; with the
  // reason. Nobody is lost as long as the head does not answer.
  std::vector<std::pair<size_t, absl::Status>> FindLost(bool hung) const;
  // By worker; if the head knows. A worker that will be started again is not.
  std::vector<bool> DeadWorkers() const;
  bool IsDead(size_t worker) const {
    return !workers_[worker].WaitReady(absl::ZeroDuration()).ok() &&
           DeadWorkers()[worker];
  }
  // The first failure, and what came of it: `last`.
  absl::Status FirstError(const absl::Status& last) const;
  // Between failures that keep training from coming further: longer and longer.
  void Pause();
  // CANCELLED if a signal asks for the end while workers are made, for the
  // first time or anew.
  absl::Status CheckNotStopped() const;
  bool MakesWorkers() const { return starting_ || recovering_; }

  // --- Checkpoints, in trainer_checkpoints.cc.

  // Makes the run folder and finds what is gone on with, before anything else.
  absl::Status OpenRun();
  // Sets resumed_ to what is gone on from, if there is anything.
  absl::Status FindCheckpoint(std::vector<std::string>* warnings);
  // The last good one in the run's folder, or the one that the run began from.
  absl::StatusOr<std::optional<Checkpoint>> LastCheckpoint(
      std::vector<std::string>* warnings) const;
  void CloseRun();
  // Whether one is due after so many epochs.
  bool CheckpointIsDue(int epochs, bool last) const;
  // Waits for the one that is being written, takes one and begins to write it.
  // REQUIRES: an epoch has been trained.
  absl::Status TakeCheckpoint();
  absl::StatusOr<Checkpoint> Snapshot();
  // Makes it the state of workers and parameter server.
  absl::Status LoadInto(const Checkpoint& checkpoint);
  // Makes it the history: what is gone on with, now that all is there.
  absl::Status GoOnFrom(std::optional<Checkpoint> checkpoint, bool anew);
  void NoteCheckpoint(const std::optional<CheckpointStore::Outcome>& outcome);

  const TrainerOptions options_;
  std::optional<Cluster> cluster_;
  std::string run_id_;
  RunOptions run_;
  std::vector<AnyActorHandle> workers_;
  WorkerPlaces places_;
  // With ids behind those of the workers; made, and not taken in.
  std::vector<AnyActorHandle> newcomers_;
  bool grows_ = false;  // Newcomers are taken in.
  bool started_ = false;
  bool needs_sync_ = false;
  int current_epoch_ = 0;
  Timing timing_;  // Not in a result yet.
  TrainContext context_;
  std::optional<absl::Time> train_start_;  // Once OnTrainStart has been called.
  // Those of the options, behind our own.
  std::vector<std::shared_ptr<Callback>> callbacks_;
  std::shared_ptr<RunFolder> run_folder_;   // Null without a storage_path.
  std::shared_ptr<ReportRun> report_;       // Null if nobody is told.
  std::unique_ptr<CheckpointStore> store_;  // Null without checkpoints.
  std::optional<Checkpoint> resumed_;       // Until the workers have it.
  int checkpointed_epochs_ = 0;             // Of the last that was taken.
  std::optional<int> stop_at_;  // Epochs, once a stop has been asked for.
  int num_regroups_ = 0;
  // Since training has come further than at any failure before: to so many
  // epochs.
  int failures_in_a_row_ = 0;
  int epochs_to_recover_ = 0;
  Backoff backoff_{absl::Milliseconds(500), absl::Seconds(30)};
  bool heals_ = false;       // Epochs run, and the policy is kHeal.
  bool starting_ = false;    // Workers are being made for the first time.
  bool recovering_ = false;  // Workers are being made anew.
  bool gives_up_ = false;    // No failure is borne any more.
  // The last call that failed.
  int failed_worker_ = -1;
  absl::Status failed_call_;
  Result result_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_TRAINER_BASE_H_
