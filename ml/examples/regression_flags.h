// The command line of regression, and what it prints.

#ifndef MINIRAY_ML_EXAMPLES_REGRESSION_FLAGS_H_
#define MINIRAY_ML_EXAMPLES_REGRESSION_FLAGS_H_

#include <optional>

#include "absl/status/status.h"
#include "ml/examples/regression_worker.h"
#include "train/metrics.h"

namespace miniray::ml {

struct RegressionFlags {
  int workers = 2;
  int epochs = 20;
  int sync_interval = 1;
  RegressionWorkerOptions data;
};

// Parses main's arguments to `flags`. Returns the exit code if the program is
// to end now, as ParseCommandLine does; also where it was to write its made-up
// table to a file.
std::optional<int> ParseRegressionFlags(int argc, char** argv,
                                        RegressionFlags* flags);

// Prints an epoch's line. epoch: from 0.
void PrintRegressionEpoch(int epoch, const train::Metrics& metrics);

// Prints how well the last epoch's model predicts.
void PrintRegressionResult(const train::Metrics& last);

// Returns the exit code for `status`, after a line that says what is wrong.
int RegressionExitCode(const absl::Status& status);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_REGRESSION_FLAGS_H_
