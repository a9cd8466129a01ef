#include "ml/data/split.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace miniray::ml {

absl::string_view SplitName(Split split) {
  return split == Split::kTrain ? "train" : "test";
}

absl::StatusOr<Split> ParseSplit(absl::string_view name) {
  for (Split split : {Split::kTrain, Split::kTest}) {
    if (name == SplitName(split)) return split;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("split is '", name, "'; expected 'train' or 'test'"));
}

}  // namespace miniray::ml
