// Trains an image classifier on several workers, whose models become their
// average every third epoch. See README.md.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/classify/classifier_worker.h"
#include "ml/examples/classification_flags.h"
#include "runtime/api/miniray.h"
#include "train/data_parallel_trainer.h"

namespace miniray::ml {
namespace {

class ClassifierTrainer : public train::DataParallelTrainer<ClassifierWorker> {
 public:
  ClassifierTrainer(train::TrainerOptions options, ClassifierWorkerOptions data)
      : DataParallelTrainer(std::move(options)), data_(std::move(data)) {}

 protected:
  absl::StatusOr<ActorHandle<ClassifierWorker>> CreateWorker(
      int worker_id, const train::Config& config) override {
    return cluster().CreateActor<ClassifierWorker>(WorkerOptions(worker_id),
                                                   data_);
  }
  void OnEpochEnd(int epoch, const train::EpochResult& result) override {
    PrintEpoch(epoch, result.metrics);
  }

 private:
  const ClassifierWorkerOptions data_;
};

int Main(int argc, char** argv) {
  ClassificationFlags flags;
  if (const auto code = ParseClassificationFlags(argc, argv, &flags)) {
    return *code;
  }
  ClassifierTrainer trainer({.num_workers = flags.workers,
                             .sync_interval = flags.sync_interval,
                             .sync_every = flags.sync_every,
                             .evaluate_every = flags.evaluate_every()},
                            flags.data);
  absl::Status status = trainer.Train({.epochs = flags.epochs}).status();
  if (status.ok()) status = SaveClassifier(trainer.workers()[0], flags.save);
  return ClassificationExitCode(status);
}

}  // namespace
}  // namespace miniray::ml

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  return miniray::ml::Main(argc, argv);
}
