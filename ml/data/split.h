// The two parts that data sets come in.

#ifndef MINIRAY_ML_DATA_SPLIT_H_
#define MINIRAY_ML_DATA_SPLIT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::ml {

enum class Split { kTrain, kTest };

// Returns "train" or "test".
absl::string_view SplitName(Split split);

// Errors: InvalidArgument for anything but "train" and "test".
absl::StatusOr<Split> ParseSplit(absl::string_view name);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_SPLIT_H_
