// A trainer whose epochs are its own: workers try random changes of a line, and
// it keeps the one that fits best (an evolution strategy). See README.md.

#include <algorithm>
#include <iostream>
#include <vector>

#include "ml/examples/example_main.h"
#include "ml/examples/line_searcher.h"
#include "runtime/base/status_macros.h"
#include "train/base_trainer.h"

namespace miniray::ml {
namespace {

class EvolutionTrainer : public train::BaseTrainer<LineSearcher> {
 public:
  using BaseTrainer::BaseTrainer;

 protected:
  absl::StatusOr<ActorHandle<LineSearcher>> CreateWorker(
      int worker_id, const train::Config& config) override {
    return cluster().CreateActor<LineSearcher>(WorkerOptions(worker_id),
                                               worker_id);
  }

  // All workers look around the best line so far, ever more closely.
  absl::StatusOr<train::EpochResult> TrainEpoch(int epoch) override {
    MR_ASSIGN_OR_RETURN(const std::vector<Line> found,
                        CallWorkers<&LineSearcher::Search>(best_, spread_));
    best_ = *std::min_element(found.begin(), found.end(), FitsBetter);
    spread_ /= 2;
    return train::EpochResult{.metrics = {{"error", best_.error}}};
  }

  void OnEpochEnd(int epoch, const train::EpochResult& result) override {
    std::cout << EpochText(epoch, best_) << std::endl;
  }

 private:
  Line best_;          // y = 0, which fits nothing.
  double spread_ = 4;  // Of the changes that workers try.
};

absl::Status Run() {
  return EvolutionTrainer({.num_workers = 3}).Train({.epochs = 12}).status();
}

}  // namespace
}  // namespace miniray::ml

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  return miniray::ml::ExampleMain(
      argc, argv,
      {.name = "custom_trainer", .summary = "Fits a line without gradients."},
      &miniray::ml::Run);
}
