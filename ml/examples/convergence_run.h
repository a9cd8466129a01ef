// The runs of `strategy_convergence`: one model trained from its first weights
// to its test accuracy.

#ifndef MINIRAY_ML_EXAMPLES_CONVERGENCE_RUN_H_
#define MINIRAY_ML_EXAMPLES_CONVERGENCE_RUN_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/classify/classifier.h"
#include "ml/data/image_dataset.h"
#include "ml/examples/convergence_worker.h"
#include "ps/strategy_registry.h"
#include "runtime/api/miniray.h"

namespace miniray::ml {

// A run on workers: actors that a parameter server synchronises after each
// `worker.steps_per_epoch` steps. Or, with a strategy that takes gradients, the
// server takes each step, with the mean of the workers' gradients.
struct ConvergenceRun {
  std::string strategy;
  ps::StrategyOptions strategy_options;
  bool takes_gradients = false;  // The strategy.
  int workers = 4;
  ConvergenceWorkerOptions worker;
  // Of the last worker; the others are sound.
  Fault fault = Fault::kNone;
};

struct ConvergenceResult {
  Evaluation evaluation;  // On the test images.
  double seconds = 0;     // Of training and synchronising.
  // Why the run ended early; then `evaluation` is of the last weights that the
  // server had, chance if there were none.
  absl::Status status;
};

// Trains on workers of `cluster`, each with one thread, and tests the weights
// that the server has in the end. Errors: no such strategy, no workers or data;
// one of a synchronisation or of training is the result's.
absl::StatusOr<ConvergenceResult> RunOnWorkers(const Cluster& cluster,
                                               const ConvergenceRun& run,
                                               const ImageDataset& test);

// Trains in this process, on all images.
absl::StatusOr<ConvergenceResult> RunInOneProcess(
    const ConvergenceWorkerOptions& worker, const ImageDataset& test);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_CONVERGENCE_RUN_H_
