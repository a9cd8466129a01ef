// Trains an image classifier on several workers, whose models become their
// average every third epoch. See README.md.

#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "ml/classify/classifier_worker.h"
#include "ml/cli/flags.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "train/data_parallel_trainer.h"

ABSL_FLAG(int, workers, 2, "workers, each in a process of its own");
ABSL_FLAG(int, epochs, 6, "passes over the data");
ABSL_FLAG(int64_t, limit, 0, "use only the first N images; 0: all");
ABSL_FLAG(std::string, network, "cnn", "mlp, cnn or resnet20");
ABSL_FLAG(std::string, dataset, "fashion-mnist",
          "fashion-mnist, mnist, cifar10, image-folder or synthetic");
ABSL_FLAG(std::string, data_dir, "", "where it is on the workers' machines");
ABSL_FLAG(
    bool, lazy, false,
    "pictures of an image-folder stay on the disk, and are read by threads "
    "ahead of each step");
ABSL_FLAG(std::string, save, "",
          "file for the trained classifier, for fid --features; empty: none");

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

// Writes the model, which is the same on all workers after the last epoch.
absl::Status Save(const ClassifierTrainer& trainer, const std::string& path) {
  MR_ASSIGN_OR_RETURN(
      const std::string bytes,
      trainer.workers()[0].Call<&ClassifierWorker::ModelFile>().Get());
  MR_RETURN_IF_ERROR(miniray::WriteOutput(path, bytes));
  std::cout << "Classifier: " << path << std::endl;
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  const miniray::ml::ProgramHelp help = {
      .name = "classification",
      .summary = "Trains an image classifier.",
      .groups = {{"Flags",
                  {"workers", "epochs", "limit", "network", "dataset",
                   "data_dir", "lazy", "save"}}}};
  if (auto code = miniray::ml::ParseCommandLine(help, argc, argv)) return *code;
  ClassifierWorkerOptions data = {.dataset = absl::GetFlag(FLAGS_dataset),
                                  .limit = absl::GetFlag(FLAGS_limit),
                                  .lazy = absl::GetFlag(FLAGS_lazy),
                                  .network = absl::GetFlag(FLAGS_network)};
  // From where this program was started, not from where a daemon was.
  if (const std::string dir = absl::GetFlag(FLAGS_data_dir); !dir.empty()) {
    data.data_dir = std::filesystem::absolute(dir).string();
  }
  ClassifierTrainer trainer({.num_workers = absl::GetFlag(FLAGS_workers),
                             .sync_interval = 3,
                             .evaluate_every = 3},
                            data);
  absl::Status status =
      trainer.Train({.epochs = absl::GetFlag(FLAGS_epochs)}).status();
  if (const std::string path = absl::GetFlag(FLAGS_save);
      status.ok() && !path.empty()) {
    status = Save(trainer, path);
  }
  return status.ok() ? 0 : miniray::ml::Fail(help, status, 1);
}
