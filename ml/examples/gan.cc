// Trains a GAN on several workers, averaged after each epoch, and shows what it
// makes. See README.md; ml/train is the program with all options.

#include <cstdint>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "ml/examples/example_main.h"
#include "ml/gan/gan_trainer.h"
#include "ml/image/grid.h"
#include "runtime/base/status_macros.h"
#include "train/metrics.h"

ABSL_FLAG(int, workers, 2, "workers, each in a process of its own");
ABSL_FLAG(int, epochs, 5, "passes over the data");
ABSL_FLAG(int64_t, limit, 0, "use only the first N images; 0: all");
ABSL_FLAG(std::string, dataset, "fashion-mnist", "or synthetic");
ABSL_FLAG(std::string, save, "gan.png", "picture of what the GAN makes");

namespace miniray::ml {
namespace {

class PrintingTrainer : public GanTrainer {
 public:
  using GanTrainer::GanTrainer;

 protected:
  void OnEpochEnd(int epoch, const train::EpochResult& result) override {
    std::cout << "epoch " << epoch + 1 << "  "
              << train::MetricsText(result.metrics) << std::endl;
  }
};

absl::Status Run() {
  PrintingTrainer trainer({.num_workers = absl::GetFlag(FLAGS_workers)},
                          {.dataset = absl::GetFlag(FLAGS_dataset),
                           .limit = absl::GetFlag(FLAGS_limit)});
  const train::RunOptions run = {.epochs = absl::GetFlag(FLAGS_epochs)};
  MR_RETURN_IF_ERROR(trainer.Train(run).status());
  // After the last synchronisation all workers have the same generator.
  const auto samples = trainer.workers()[0].Call<&GanWorker::SampleImages>(
      uint64_t{1}, int64_t{64});
  MR_ASSIGN_OR_RETURN(const at::Tensor images, samples.Get());
  return SaveImageGrid(absl::GetFlag(FLAGS_save), images, /*columns=*/8);
}

}  // namespace
}  // namespace miniray::ml

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  return miniray::ml::ExampleMain(
      argc, argv,
      {.name = "gan",
       .summary = "Trains a GAN.",
       .groups = {{"GAN", {"workers", "epochs", "limit", "dataset", "save"}}}},
      &miniray::ml::Run);
}
