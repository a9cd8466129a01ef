// Trains an image classifier on several workers, whose models become their
// average every third epoch. See README.md.

#include <iostream>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "ml/classify/classifier_worker.h"
#include "ml/cli/flags.h"
#include "train/data_parallel_trainer.h"

ABSL_FLAG(int, workers, 2, "workers, each in a process of its own");
ABSL_FLAG(int, epochs, 6, "passes over the data");
ABSL_FLAG(int64_t, limit, 0, "use only the first N images; 0: all");

using miniray::ml::ClassifierWorker;
using miniray::ml::ClassifierWorkerOptions;
namespace train = miniray::train;

class ClassifierTrainer : public train::DataParallelTrainer<ClassifierWorker> {
 public:
  ClassifierTrainer(train::TrainerOptions options, ClassifierWorkerOptions data)
      : DataParallelTrainer(std::move(options)), data_(std::move(data)) {}

 protected:
  absl::StatusOr<miniray::ActorHandle<ClassifierWorker>> CreateWorker(
      int worker_id, const train::Config& config) override {
    return cluster().CreateActor<ClassifierWorker>(WorkerOptions(worker_id),
                                                   data_);
  }
  void OnEpochEnd(int epoch, const train::EpochResult& result) override {
    const train::Metrics& metrics = result.metrics;
    std::cout << absl::StrFormat("epoch %2d  loss %.4f", epoch + 1,
                                 metrics.at("loss"));
    if (metrics.contains("eval/accuracy")) {
      std::cout << absl::StrFormat("  averaged; test accuracy %.2f %%",
                                   100 * metrics.at("eval/accuracy"));
    }
    std::cout << std::endl;
  }

 private:
  const ClassifierWorkerOptions data_;
};

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  const miniray::ml::ProgramHelp help = {
      .name = "classification",
      .summary = "Trains an image classifier on Fashion-MNIST.",
      .groups = {{"Flags", {"workers", "epochs", "limit"}}}};
  if (auto code = miniray::ml::ParseCommandLine(help, argc, argv)) return *code;
  ClassifierTrainer trainer({.num_workers = absl::GetFlag(FLAGS_workers),
                             .sync_interval = 3,
                             .evaluate_every = 3},
                            {.limit = absl::GetFlag(FLAGS_limit)});
  const auto result = trainer.Train({.epochs = absl::GetFlag(FLAGS_epochs)});
  return result.ok() ? 0 : miniray::ml::Fail(help, result.status(), 1);
}
