#include "ml/examples/convergence_run.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
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

// Accuracy and loss of these weights; of the first ones if there are none.
absl::StatusOr<Evaluation> Evaluate(const ConvergenceRun& run,
                                    const NamedTensors& weights,
                                    const ImageDataset& test) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Classifier> classifier,
                      Classifier::Create({.channels = test.channels(),
                                          .height = test.height(),
                                          .width = test.width(),
                                          .hidden = run.worker.hidden,
                                          .classes = test.num_classes()}));
  if (!weights.empty()) MR_RETURN_IF_ERROR(classifier->SetWeights(weights));
  return classifier->Evaluate(test);
}

// All steps of a run whose server takes gradients.
absl::Status TakeSteps(
    const ActorHandle<ps::ParameterServer>& server,
    const std::vector<ActorHandle<ConvergenceWorker>>& workers, int64_t steps) {
  const std::vector<AnyActorHandle> handles(workers.begin(), workers.end());
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<ObjectRef<double>> losses;
    for (const auto& worker : workers) {
      losses.push_back(worker.Call<&ConvergenceWorker::ComputeGradients>(step));
    }
    MR_RETURN_IF_ERROR(GetAll(losses).status());
    MR_RETURN_IF_ERROR(
        server.Call<&ps::ParameterServer::SyncGradientsFromWorkers>(handles)
            .Get()
            .status());
  }
  return absl::OkStatus();
}

absl::StatusOr<ConvergenceResult> RunWithGradients(const Cluster& cluster,
                                                   const ConvergenceRun& run,
                                                   const ImageDataset& test) {
  std::vector<ActorHandle<ConvergenceWorker>> workers;
  std::vector<ObjectRef<void>> loaded;
  for (int i = 0; i < run.workers; ++i) {
    MR_ASSIGN_OR_RETURN(
        ActorHandle<ConvergenceWorker> worker,
        cluster.CreateActor<ConvergenceWorker>({.num_threads = 1}, run.worker));
    loaded.push_back(
        worker.Call<&ConvergenceWorker::LoadDataShard>(i, run.workers));
    workers.push_back(std::move(worker));
  }
  MR_ASSIGN_OR_RETURN(
      const ActorHandle<ps::ParameterServer> server,
      ps::CreateParameterServer(cluster, run.strategy, run.strategy_options));
  const auto end_all = absl::MakeCleanup([&] {
    for (const auto& worker : workers) worker.Kill().IgnoreError();
    server.Kill().IgnoreError();
  });
  for (const auto& ref : loaded) MR_RETURN_IF_ERROR(ref.Get());
  MR_RETURN_IF_ERROR(
      server
          .Call<&ps::ParameterServer::StartFromWorkers>(
              std::vector<AnyActorHandle>(workers.begin(), workers.end()))
          .Get()
          .status());
  ConvergenceResult result;
  const absl::Time start = absl::Now();
  result.status = TakeSteps(server, workers, run.worker.steps);
  result.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  MR_ASSIGN_OR_RETURN(const NamedTensors weights,
                      server.Call<&ps::ParameterServer::PullWeights>().Get());
  MR_ASSIGN_OR_RETURN(result.evaluation, Evaluate(run, weights, test));
  return result;
}

}  // namespace

absl::StatusOr<ConvergenceResult> RunOnWorkers(const Cluster& cluster,
                                               const ConvergenceRun& run,
                                               const ImageDataset& test) {
  if (run.takes_gradients) return RunWithGradients(cluster, run, test);
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
  MR_ASSIGN_OR_RETURN(result.evaluation,
                      Evaluate(run, trainer.weights(), test));
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
