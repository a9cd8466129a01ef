// The flags of programs that train with a train::TrainLoop: --accumulate,
// --precision, --clip-norm, --lr-schedule, --warmup-epochs, --on-non-finite and
// --device.

#ifndef MINIRAY_ML_CLI_TRAIN_LOOP_FLAGS_H_
#define MINIRAY_ML_CLI_TRAIN_LOOP_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "train/train_loop_options.h"

namespace miniray::ml {

// Their names, for ProgramHelp::groups.
std::vector<std::string> TrainLoopFlags();

// What they say of a training of so many epochs. The schedule goes by epochs.
//
// Errors: INVALID_ARGUMENT, with the flag and what it may be.
absl::StatusOr<train::TrainLoopOptions> TrainLoopOptionsFromFlags(int epochs);

// Looks at the name only: devices are the workers'.
absl::StatusOr<std::string> DeviceFromFlags();

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLI_TRAIN_LOOP_FLAGS_H_
