// The command line of classification, and what it prints and saves.

#ifndef MINIRAY_ML_EXAMPLES_CLASSIFICATION_FLAGS_H_
#define MINIRAY_ML_EXAMPLES_CLASSIFICATION_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "ml/classify/classifier_worker.h"
#include "runtime/api/miniray.h"
#include "train/metrics.h"

namespace miniray::ml {

struct ClassificationFlags {
  int workers = 2;
  int epochs = 6;
  int sync_interval = 3;   // Epochs; 1 with sync_every.
  int64_t sync_every = 0;  // Steps; 0: epochs count.
  // Epochs; 0: never, which is when data.evaluates is false.
  int evaluate_every() const { return data.evaluates ? sync_interval : 0; }
  ClassifierWorkerOptions data;
  std::string save;  // A file in a folder that is there; empty: none.
};

// Parses main's arguments to `flags`. Returns the exit code if the program is
// to end now, as ParseCommandLine does; also where there is no folder for what
// is to be saved.
std::optional<int> ParseClassificationFlags(int argc, char** argv,
                                            ClassificationFlags* flags);

// Prints an epoch's line. epoch: from 0.
void PrintEpoch(int epoch, const train::Metrics& metrics);

// Writes a worker's model to the file and says so; nothing for an empty path.
// After an epoch with an average all workers have the same one.
//
// Errors: those of the call, and of writing.
absl::Status SaveClassifier(const ActorHandle<ClassifierWorker>& worker,
                            const std::string& path);

// Returns the exit code for `status`, after a line that says what is wrong.
int ClassificationExitCode(const absl::Status& status);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_CLASSIFICATION_FLAGS_H_
