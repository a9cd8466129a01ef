// DataParallelTrainer: every worker trains its own copy of the model on its own
// part of the data; every few epochs the copies become their average.
//
//   class GanTrainer : public train::DataParallelTrainer<GanWorker> {
//    public:
//     GanTrainer(train::TrainerOptions options, int latent_dim)
//         : DataParallelTrainer(std::move(options)), latent_dim_(latent_dim) {}
//
//    protected:
//     absl::StatusOr<ActorHandle<GanWorker>> CreateWorker(
//         int worker_id, const train::Config& config) override {
//       MR_ASSIGN_OR_RETURN(double lr, config.GetDouble("lr", 0.0002));
//       return cluster().CreateActor<GanWorker>(WorkerOptions(worker_id),
//                                               worker_id, latent_dim_, lr);
//     }
//
//    private:
//     const int latent_dim_;
//   };
//
//   GanTrainer trainer({.num_workers = 4, .sync_interval = 5}, 100);
//   absl::StatusOr<train::Result> result =
//       trainer.Train({.epochs = 50, .config = {{"lr", 0.001}}});
//   absl::StatusOr<NamedTensors> model = trainer.PullWeights();

#ifndef MINIRAY_TRAIN_DATA_PARALLEL_TRAINER_H_
#define MINIRAY_TRAIN_DATA_PARALLEL_TRAINER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "ps/parameter_server.h"
#include "train/base_trainer.h"
#include "train/evaluators.h"
#include "train/merge_metrics.h"
#include "train/optional_methods.h"
#include "train/weight_sync.h"
#include "train/worker_contract.h"

namespace miniray::train {

// Adds to BaseTrainer, which see for the hooks:
//
// - Before the first epoch each worker gets its shard: LoadDataShard(worker_id,
//   num_workers), where the worker class has it.
// - After epochs K-1, 2K-1, ... (K = sync_interval), and after the last epoch
//   in any case, the weights of all workers are synchronised through a
//   parameter server, unless they have been since they trained. So what is
//   saved after training is the average of all that was trained.
// - With sync_every, an epoch is trained in pieces of so many steps, and the
//   weights are synchronised after each. A worker whose data ends earlier takes
//   part with the weights that it has.
// - With overlap_sync, the next piece is trained while the weights that the
//   last one ended with are synchronised; see OverlappedWeights for what is
//   then made of both. The synchronisation behind the last piece of an epoch is
//   waited for.
// - With evaluate_every, see Evaluate.
// - See AverageMetrics for the metrics of an epoch.
template <class Worker>
class DataParallelTrainer : public BaseTrainer<Worker> {
  static_assert(internal::RequireTrainWorker<Worker>::value);
  static_assert(internal::RequireOptionalMethods<Worker>::value);

 public:
  explicit DataParallelTrainer(TrainerOptions options)
      : BaseTrainer<Worker>(std::move(options)),
        sync_(this->options().sync_strategy, this->options().strategy_options,
              this->options().server_options, this->options().num_workers,
              [this](const auto& call) { return this->AwaitServer(call); }) {}

  void Shutdown() override {
    evaluators_.StopForGood();
    sync_.StopForGood();
    BaseTrainer<Worker>::Shutdown();
  }

  // Sets how much a worker counts in strategies like "weighted": its number of
  // samples, say. Before Train or during it. Once it is set for one, it is 1
  // for those for which it is not, and NumSamples does not count; workers
  // without NumSamples need it.
  //
  // weight: finite, >= 0. Errors: INVALID_ARGUMENT. FAILED_PRECONDITION, the
  // strategy has no use for weights, or the number of workers may change and
  // their shares of the data with it (max_workers): NumSamples then tells them.
  absl::Status SetWorkerWeight(int worker_id, double weight) {
    if (IsElastic(this->options())) {
      return absl::FailedPreconditionError(
          "with max_workers the workers' shares of the data change; let the "
          "worker class have `int64_t NumSamples()`, which the strategy asks");
    }
    return sync_.SetWorkerWeight(worker_id, weight);
  }

  // The parameter server's figures.
  // Errors: FAILED_PRECONDITION, before Train or after Shutdown.
  absl::StatusOr<ps::SyncStats> GetSyncStats() const { return sync_.Stats(); }

  // Returns the weights as last synchronised. Errors: like GetSyncStats.
  absl::StatusOr<NamedTensors> PullWeights() const {
    return sync_.PullWeights();
  }

  const ActorHandle<ps::ParameterServer>& parameter_server() const {
    return sync_.server();
  }

  // Deals the test data over the workers, each of which evaluates its part with
  // EvaluateShard, and returns the metrics as of one process; see
  // MergeEvaluation for what is exact. Workers that have trained since are
  // synchronised first, so that it is one model that is evaluated. Training
  // waits meanwhile.
  //
  // With evaluate_every the trainer calls it by itself; the metrics stand in
  // EpochResult::metrics as "eval/accuracy" and so on, with the time that it
  // took, "eval/seconds". With num_evaluators those do it, one evaluation at a
  // time, and training goes on: it then comes with OnEvaluation, and waits only
  // for the one before, for a checkpoint, and at the end.
  //
  // Errors: FAILED_PRECONDITION, before Train or after Shutdown, or there are
  // no test data. INVALID_ARGUMENT, metrics that do not fit. Of the first
  // worker that fails.
  absl::StatusOr<Metrics> Evaluate() {
    static_assert(internal::HasEvaluateShard<Worker>,
                  "the worker class needs `train::Metrics EvaluateShard(int "
                  "shard, int num_shards)` (or absl::StatusOr of it), listed "
                  "in its MINIRAY_ACTOR");
    return EvaluateWith(this->config());
  }

  // The same with test data of that name: EvaluateShard finds it in its config,
  // as "data_set".
  absl::StatusOr<Metrics> Evaluate(absl::string_view data_set) {
    static_assert(internal::HasConfigEvaluateShard<Worker>,
                  "the worker class needs `train::Metrics EvaluateShard(int "
                  "shard, int num_shards, const train::Config& config)` (or "
                  "absl::StatusOr of it), listed in its MINIRAY_ACTOR");
    Config config = this->config();
    config.Set("data_set", std::string(data_set));
    return EvaluateWith(config);
  }

 protected:
  // As BaseTrainer's; with overlap_sync, what the parameter server calls does
  // not wait for the training.
  ActorOptions WorkerOptions(int worker_id) const {
    ActorOptions options = BaseTrainer<Worker>::WorkerOptions(worker_id);
    if constexpr (internal::HasOverlap<Worker>) {
      if (!this->options().overlap_sync) return options;
      ConcurrencyGroup group{
          .name = "synchronisation",
          .methods = {MethodName<Worker, &Worker::LendWeights>(),
                      MethodName<Worker, &Worker::SetWeights>()}};
      if constexpr (internal::HasNumSamples<Worker>) {
        group.methods.push_back(MethodName<Worker, &Worker::NumSamples>());
      }
      if constexpr (internal::HasBufferNames<Worker>) {
        group.methods.push_back(MethodName<Worker, &Worker::BufferNames>());
      }
      options.concurrency_groups.push_back(std::move(group));
    }
    return options;
  }

  // See BaseTrainer; with sync_every in pieces.
  absl::StatusOr<EpochResult> TrainEpoch(int epoch) override {
    // Before anything is trained for a synchronisation that would fail.
    MR_RETURN_IF_ERROR(sync_.CheckWeights(this->worker_handles()));
    if constexpr (internal::HasTrainSteps<Worker>) {
      if (this->options().sync_every > 0) return TrainInPieces(epoch);
    }
    return BaseTrainer<Worker>::TrainEpoch(epoch);
  }

  // A synchronisation is done; `epoch` is the one that runs or has just ended.
  virtual void OnSync(int epoch, const ps::SyncResult& result) {}

  // Synchronises now, besides the schedule. With FailurePolicy::kHeal, once
  // more where workers are lost: those in their places have not trained since
  // the last one. Errors: of SyncFromWorkers.
  absl::StatusOr<ps::SyncResult> SyncWeights() {
    const absl::Time start = absl::Now();
    absl::StatusOr<ps::SyncResult> result = sync_.Sync(this->worker_handles());
    while (!result.ok()) {
      absl::Status error = Annotate(result.status(), "synchronisation");
      MR_ASSIGN_OR_RETURN(const bool healed, this->HealLost(&error));
      if (!healed) return error;
      result = sync_.SyncAgain(this->worker_handles());
    }
    NoteSync(start, *result);
    return result;
  }

 private:
  const char* Kind() const final { return "DataParallelTrainer"; }
  AnyActorHandle ServerHandle() const final { return sync_.server(); }

  absl::Status CheckSetup() const final {
    if (IsElastic(this->options())) {
      MR_RETURN_IF_ERROR(sync_.CheckElastic());
      if (internal::ShardCallOf<Worker>() == internal::ShardCall::kNone) {
        return absl::InvalidArgumentError(
            "max_workers is set, and the worker class has no `void "
            "LoadDataShard(int shard_id, int num_shards)`, with which the data "
            "are dealt anew");
      }
    }
    if (this->options().sharding.has_value() &&
        internal::ShardCallOf<Worker>() != internal::ShardCall::kWithConfig) {
      return absl::InvalidArgumentError(
          "sharding is set, and the worker class has no `LoadDataShard(int "
          "shard_id, int num_shards, const train::Config& config)` that would "
          "read it with train::ShardingFromConfig(config)");
    }
    if (this->options().sync_every > 0 && !internal::HasTrainSteps<Worker>) {
      return absl::InvalidArgumentError(
          "sync_every is set, and the worker class has no `train::Metrics "
          "TrainSteps(int epoch, int64_t first, int64_t count)`");
    }
    if (this->options().overlap_sync && !internal::HasOverlap<Worker>) {
      return absl::InvalidArgumentError(
          "overlap_sync is set, and the worker class has no `void "
          "SnapshotWeights()`, `void ApplyWeights(bool trained)` and "
          "`ReadOnly<NamedTensors> LendWeights()`, one line each around a "
          "train::OverlappedWeights, listed in its MINIRAY_ACTOR");
    }
    if (this->options().evaluate_every > 0 &&
        !internal::HasEvaluateShard<Worker>) {
      return absl::InvalidArgumentError(
          "evaluate_every is set, and the worker class has no `train::Metrics "
          "EvaluateShard(int shard, int num_shards)`");
    }
    return sync_.Check();
  }

  absl::StatusOr<Metrics> EvaluateWith(const Config& config) {
    if (this->workers().empty()) {
      return absl::FailedPreconditionError(
          "there are no workers to evaluate before Train, nor after Shutdown");
    }
    if (this->needs_sync()) MR_RETURN_IF_ERROR(SyncWeights().status());
    const int num_shards = static_cast<int>(this->workers().size());
    std::vector<ObjectRef<Metrics>> refs(num_shards);
    MR_RETURN_IF_ERROR(this->CallAndAwait("EvaluateShard", [&](int shard) {
      const ActorHandle<Worker>& worker = this->workers()[shard];
      if constexpr (internal::HasConfigEvaluateShard<Worker>) {
        refs[shard] = worker.template Call<&Worker::EvaluateShard>(
            shard, num_shards, config);
      } else {
        refs[shard] =
            worker.template Call<&Worker::EvaluateShard>(shard, num_shards);
      }
      return refs[shard].state();
    }));
    MR_ASSIGN_OR_RETURN(const std::vector<Metrics> shards, GetAll(refs));
    absl::StatusOr<Metrics> metrics = MergeEvaluation(shards);
    if (!metrics.ok()) return Annotate(metrics.status(), "evaluation");
    return metrics;
  }

  absl::StatusOr<EpochResult> TrainInPieces(int epoch) {
    const int64_t count = this->options().sync_every;
    EpochPieces pieces(this->workers().size());
    for (int64_t first = 0;; first += count) {
      MR_ASSIGN_OR_RETURN(
          const std::vector<Metrics> piece,
          this->template CallWorkers<&Worker::TrainSteps>(epoch, first, count));
      MR_RETURN_IF_ERROR(Annotate(pieces.Add(piece, count), "TrainSteps"));
      const bool trained = pieces.most_steps() > 0;
      const bool last = pieces.most_steps() < count;
      if (this->options().overlap_sync) {
        MR_RETURN_IF_ERROR(ApplySync(trained, last));
      }
      if (trained) {
        this->MarkTrained();
        MR_RETURN_IF_ERROR(this->options().overlap_sync && !last
                               ? sync_.Begin(this->worker_handles())
                               : SyncWeights().status());
      }
      if (last) return pieces.Result();
    }
  }

  // Behind a piece of an epoch: waits for the synchronisation that ran beside
  // it, if one did, and has the workers apply it; unless it was the last piece,
  // they take the snapshot for the next.
  absl::Status ApplySync(bool trained, bool last) {
    if (sync_.runs()) {
      const absl::Time start = absl::Now();
      const absl::StatusOr<ps::SyncResult> result = sync_.Finish();
      if (!result.ok()) {
        absl::Status error =
            Annotate(result.status(), "synchronisation beside training");
        // Only names the lost: this is never healed.
        MR_RETURN_IF_ERROR(this->HealLost(&error).status());
        return error;
      }
      NoteSync(start, *result);
    }
    return this->CallForSync(
        last ? "ApplyWeights" : "SnapshotWeights", [&](int id) {
          const AnyActorHandle& worker = this->worker_handles()[id];
          return last ? worker.CallByName<void>("ApplyWeights", trained).state()
                      : worker.CallByName<void>("SnapshotWeights").state();
        });
  }

  // One is done that training has waited for since `waited`.
  void NoteSync(absl::Time waited, const ps::SyncResult& result) {
    this->MarkSynced(waited);
    if (!epoch_sync_.has_value()) epoch_sync_.emplace();
    AddSync(result, &*epoch_sync_);
    OnSync(this->current_epoch(), result);
    this->NotifySync(result);
  }

  // If it is time to, and this epoch has not been evaluated yet.
  absl::Status EvaluateIfDue(int epoch, bool last, EpochResult* result) {
    if constexpr (internal::HasEvaluateShard<Worker>) {
      const int every = this->options().evaluate_every;
      if (every == 0) return absl::OkStatus();
      // After a signal nobody waits for a whole test set.
      const bool due =
          (epoch + 1) % every == 0 || (last && !this->StoppedBySignal());
      if (!due || result->metrics.count(
                      absl::StrCat(kEvaluationPrefix, kSamplesMetric)) > 0) {
        return absl::OkStatus();
      }
      if (this->options().num_evaluators > 0) return BeginEvaluation(epoch);
      if (this->needs_sync()) MR_RETURN_IF_ERROR(SyncWeights().status());
      const absl::Time start = absl::Now();
      MR_ASSIGN_OR_RETURN(Metrics metrics, Evaluate());
      metrics["seconds"] = absl::ToDoubleSeconds(absl::Now() - start);
      result->metrics.merge(WithEvaluationPrefix(metrics));
    }
    return absl::OkStatus();
  }

  // Beside training, on the weights as synchronised; unless it runs already.
  absl::Status BeginEvaluation(int epoch) {
    if (evaluators_.epoch() == epoch) return absl::OkStatus();
    MR_RETURN_IF_ERROR(CollectEvaluation(/*wait=*/true));
    if (this->needs_sync()) MR_RETURN_IF_ERROR(SyncWeights().status());
    // One by one: with min_workers the server bears that some of several get
    // nothing.
    for (size_t i = 0; i < evaluators_.actors().size(); ++i) {
      MR_RETURN_IF_ERROR(
          sync_.SendTo(absl::StrCat("evaluator ", i), evaluators_.actors()[i]));
    }
    evaluators_.Begin(epoch, internal::HasConfigEvaluateShard<Worker>
                                 ? &this->config()
                                 : nullptr);
    return absl::OkStatus();
  }

  absl::Status CollectEvaluation(bool wait) final {
    MR_ASSIGN_OR_RETURN(
        const std::optional<Evaluators::Outcome> outcome,
        evaluators_.Collect(wait, this->options().failure.hang_timeout));
    if (outcome.has_value()) {
      this->AddEvaluation(outcome->epoch,
                          WithEvaluationPrefix(outcome->metrics));
    }
    return absl::OkStatus();
  }

  absl::Status MakeEvaluators(NamedActors* actors) {
    MR_RETURN_IF_ERROR(  // Earlier ones.
        this->UntilHeadAnswers([this] { return evaluators_.Stop(); }));
    for (int i = 0; i < this->options().num_evaluators; ++i) {
      const std::string name = absl::StrCat("evaluator ", i);
      MR_ASSIGN_OR_RETURN(
          const AnyActorHandle evaluator,
          this->CheckCreated(name, this->CreateWorker(this->num_workers() + i,
                                                      this->config())));
      evaluators_.Add(evaluator);
      actors->emplace_back(name, evaluator);
    }
    return absl::OkStatus();
  }

  absl::Status BeforeWorkers(NamedActors* actors) final {
    // An earlier one.
    MR_RETURN_IF_ERROR(this->UntilHeadAnswers([this] { return sync_.Stop(); }));
    MR_RETURN_IF_ERROR(MakeEvaluators(actors));
    epoch_sync_.reset();  // Of a Train that failed.
    MR_RETURN_IF_ERROR(sync_.Start(this->cluster(),
                                   this->HelperOptions("parameter-server"),
                                   this->made_anew()));
    actors->emplace_back("the parameter server", sync_.server());
    return absl::OkStatus();
  }

  // To all workers, or to this one alone.
  absl::Status DealData(std::optional<int> only = std::nullopt) {
    return this->AwaitWorkers(
        CallLoadDataShard(this->worker_handles(),
                          internal::ShardCallOf<Worker>(),
                          ConfigForData(this->options(), this->config()), only),
        "LoadDataShard");
  }

  absl::Status AfterWorkers() final {
    MR_RETURN_IF_ERROR(sync_.BeginAnew());
    MR_RETURN_IF_ERROR(sync_.SendWorkerWeights());
    MR_RETURN_IF_ERROR(DealData());
    return sync_.SendStart(this->worker_handles());
  }

  absl::Status AfterReplacement(int worker_id) final {
    MR_RETURN_IF_ERROR(DealData(worker_id));
    return SendWeightsTo(worker_id);
  }

  absl::Status AfterGrowth(int first_new) final {
    MR_RETURN_IF_ERROR(DealData());
    for (int id = first_new; id < this->num_workers(); ++id) {
      MR_RETURN_IF_ERROR(SendWeightsTo(id));
    }
    return absl::OkStatus();
  }

  absl::Status SendWeightsTo(int worker_id) const {
    return sync_.SendTo(absl::StrCat("worker ", worker_id),
                        this->worker_handles()[worker_id]);
  }

  absl::Status Synchronize(int epoch, bool last, EpochResult* result) final {
    const bool due = (epoch + 1) % this->options().sync_interval == 0;
    if (this->needs_sync() && (due || last)) {
      MR_RETURN_IF_ERROR(SyncWeights().status());
    }
    MR_RETURN_IF_ERROR(EvaluateIfDue(epoch, last, result));
    if (epoch_sync_.has_value()) {
      result->synced = true;
      result->sync = *std::exchange(epoch_sync_, std::nullopt);
    }
    return absl::OkStatus();
  }

  absl::Status SaveServer(std::optional<std::string>* state) final {
    MR_ASSIGN_OR_RETURN(*state, sync_.ExportState());
    return absl::OkStatus();
  }

  absl::Status LoadServer(const std::optional<std::string>& state) final {
    if (state.has_value()) return sync_.ImportState(*state);
    return absl::FailedPreconditionError(
        "the checkpoint has no parameter server's state: it is another "
        "trainer's");
  }

  WeightSync sync_;
  Evaluators evaluators_;
  std::optional<ps::SyncResult> epoch_sync_;  // Not in a result yet.
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_PARALLEL_TRAINER_H_
