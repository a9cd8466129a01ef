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

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "ps/parameter_server.h"
#include "train/base_trainer.h"
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
// - See AverageMetrics for the metrics of an epoch.
template <class Worker>
class DataParallelTrainer : public BaseTrainer<Worker> {
  static_assert(internal::RequireTrainWorker<Worker>::value);

 public:
  explicit DataParallelTrainer(TrainerOptions options)
      : BaseTrainer<Worker>(std::move(options)),
        sync_(this->options().sync_strategy, this->options().strategy_options,
              this->options().server_options, this->options().num_workers) {}

  void Shutdown() override {
    sync_.Stop();
    BaseTrainer<Worker>::Shutdown();
  }

  // Sets how much a worker counts in strategies like "weighted": its number of
  // samples, say; 1 if not set. Before Train or during it.
  //
  // weight: finite, >= 0. Errors: INVALID_ARGUMENT. FAILED_PRECONDITION, the
  // strategy has no use for weights.
  absl::Status SetWorkerWeight(int worker_id, double weight) {
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

 protected:
  // A synchronisation is done; `epoch` is the one that runs or has just ended.
  virtual void OnSync(int epoch, const ps::SyncResult& result) {}

  // Synchronises now, besides the schedule. Errors: of SyncFromWorkers.
  absl::StatusOr<ps::SyncResult> SyncWeights() {
    const absl::Time start = absl::Now();
    absl::StatusOr<ps::SyncResult> result = sync_.Sync(this->worker_handles());
    if (!result.ok()) return Annotate(result.status(), "synchronisation");
    this->MarkSynced(start);
    epoch_sync_ = *result;
    OnSync(this->current_epoch(), *result);
    this->NotifySync(*result);
    return result;
  }

 private:
  absl::Status CheckSetup() const final {
    if (this->options().checkpoint.enabled()) {
      MR_RETURN_IF_ERROR(sync_.CheckExport());
    }
    return sync_.Check();
  }

  absl::Status BeforeWorkers(NamedActors* actors) final {
    MR_RETURN_IF_ERROR(
        sync_.Start(this->cluster(), this->HelperOptions("parameter-server")));
    actors->emplace_back("the parameter server", sync_.server());
    return absl::OkStatus();
  }

  absl::Status AfterWorkers() final {
    MR_RETURN_IF_ERROR(sync_.SendWorkerWeights());
    const auto calls =
        CallLoadDataShard(this->worker_handles(),
                          internal::ShardCallOf<Worker>(), this->config());
    if (!calls.empty()) {
      MR_RETURN_IF_ERROR(this->AwaitWorkers(calls, "LoadDataShard"));
    }
    return sync_.SendStart(this->worker_handles());
  }

  absl::Status Synchronize(int epoch, bool last, EpochResult* result) final {
    const bool due = (epoch + 1) % this->options().sync_interval == 0;
    if (this->needs_sync() && (due || last)) {
      MR_RETURN_IF_ERROR(SyncWeights().status());
    }
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
  std::optional<ps::SyncResult> epoch_sync_;  // Not in a result yet.
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_PARALLEL_TRAINER_H_
