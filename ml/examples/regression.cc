// Predicts a column of a table from the others, with workers that train on
// parts of it. See README.md.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/examples/regression_flags.h"
#include "ml/examples/regression_worker.h"
#include "runtime/api/miniray.h"
#include "train/data_parallel_trainer.h"

namespace miniray::ml {
namespace {

class RegressionTrainer : public train::DataParallelTrainer<RegressionWorker> {
 public:
  RegressionTrainer(train::TrainerOptions options, RegressionWorkerOptions data)
      : DataParallelTrainer(std::move(options)), data_(std::move(data)) {}

 protected:
  absl::StatusOr<ActorHandle<RegressionWorker>> CreateWorker(
      int worker_id, const train::Config& config) override {
    return cluster().CreateActor<RegressionWorker>(WorkerOptions(worker_id),
                                                   data_);
  }
  void OnEpochEnd(int epoch, const train::EpochResult& result) override {
    PrintRegressionEpoch(epoch, result.metrics);
  }

 private:
  const RegressionWorkerOptions data_;
};

int Main(int argc, char** argv) {
  RegressionFlags flags;
  if (const auto code = ParseRegressionFlags(argc, argv, &flags)) return *code;
  RegressionTrainer trainer({.num_workers = flags.workers,
                             .sync_interval = flags.sync_interval,
                             .evaluate_every = flags.sync_interval},
                            flags.data);
  const absl::StatusOr<train::Result> result =
      trainer.Train({.epochs = flags.epochs});
  if (result.ok()) PrintRegressionResult(result->metrics());
  return RegressionExitCode(result.status());
}

}  // namespace
}  // namespace miniray::ml

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  return miniray::ml::Main(argc, argv);
}
