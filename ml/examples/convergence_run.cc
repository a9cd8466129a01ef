#include "ml/examples/convergence_run.h"

#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "ps/parameter_server.h"
#include "runtime/base/status_macros.h"
#include "train/data_parallel_trainer.h"

namespace miniray::ml {
namespace {

// An "epoch" is what lies between two synchronisations.
int Epochs(const ConvergenceWorkerOptions& worker) {
  return static_cast<int>(worker.steps / worker.steps_per_epoch);
}

class ConvergenceTrainer
    : public train::DataParallelTrainer<ConvergenceWorker> {
 public:
  ConvergenceTrainer(train::TrainerOptions options, const ConvergenceRun& run)
      : DataParallelTrainer(std::move(options)), run_(run) {}

  // Of the last synchronisation, even if Train failed afterwards; empty before
  // the first.
  const NamedTensors& weights() const { return weights_; }
  // Whether the first epoch has begun.
  bool began() const { return began_; }

 protected:
  absl::StatusOr<ActorHandle<ConvergenceWorker>> CreateWorker(
      int worker_id, const train::Config& config) override {
    ActorOptions options = WorkerOptions(worker_id);
    options.num_threads = 1;
    ConvergenceWorkerOptions worker = run_.worker;
    if (worker_id + 1 == run_.workers) worker.fault = run_.fault;
    return cluster().CreateActor<ConvergenceWorker>(options, worker);
  }

  void OnEpochStart(int epoch) override { began_ = true; }
  void OnEpochEnd(int epoch, const train::EpochResult& result) override {}
  void OnSync(int epoch, const ps::SyncResult& result) override {
    if (absl::StatusOr<NamedTensors> weights = PullWeights(); weights.ok()) {
      weights_ = *std::move(weights);
    }
  }

 private:
  const ConvergenceRun run_;
  NamedTensors weights_;
  bool began_ = false;
};

}  // namespace

absl::StatusOr<ConvergenceResult> RunOnWorkers(const Cluster& cluster,
                                               const ConvergenceRun& run,
                                               const ImageDataset& test) {
  ps::ServerOptions server;
  // Strategies that stand broken workers get to see what those send.
  if (run.fault == Fault::kNan) server.non_finite = ps::NonFinitePolicy::kAllow;
  ConvergenceTrainer trainer({.num_workers = run.workers,
                              .cluster = cluster,
                              .sync_strategy = run.strategy,
                              .strategy_options = run.strategy_options,
                              .server_options = server},
                             run);
  ConvergenceResult result;
  const absl::StatusOr<train::Result> trained =
      trainer.Train({.epochs = Epochs(run.worker)});
  if (trained.ok()) {
    result.seconds = trained->seconds;
  } else if (trainer.began()) {
    result.status = trained.status();
  } else {
    return trained.status();
  }
  MR_ASSIGN_OR_RETURN(
      const std::unique_ptr<Classifier> classifier,
      Classifier::Create(
          {.inputs = test.channels() * test.height() * test.width(),
           .hidden = run.worker.hidden,
           .classes = test.num_classes()}));
  if (!trainer.weights().empty()) {
    MR_RETURN_IF_ERROR(classifier->SetWeights(trainer.weights()));
  }
  result.evaluation = classifier->Evaluate(test);
  return result;
}

absl::StatusOr<ConvergenceResult> RunInOneProcess(
    const ConvergenceWorkerOptions& worker, const ImageDataset& test) {
  ConvergenceWorker trained(worker);
  MR_RETURN_IF_ERROR(trained.LoadDataShard(0, 1));
  const absl::Time start = absl::Now();
  for (int epoch = 0; epoch < Epochs(worker); ++epoch) {
    MR_RETURN_IF_ERROR(trained.TrainEpoch(epoch).status());
  }
  ConvergenceResult result;
  result.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  result.evaluation = trained.classifier()->Evaluate(test);
  return result;
}

}  // namespace miniray::ml
