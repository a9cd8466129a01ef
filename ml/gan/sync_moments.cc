#include "ml/gan/sync_moments.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace miniray::ml {

absl::string_view SyncMomentsName(SyncMoments moments) {
  switch (moments) {
    case SyncMoments::kKeep:
      return "keep";
    case SyncMoments::kAverage:
      return "average";
    case SyncMoments::kReset:
      return "reset";
  }
  return "";
}

absl::StatusOr<SyncMoments> ParseSyncMoments(absl::string_view name) {
  for (const SyncMoments moments :
       {SyncMoments::kKeep, SyncMoments::kAverage, SyncMoments::kReset}) {
    if (name == SyncMomentsName(moments)) return moments;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "Adam's moments are '", name, "'; expected keep, average or reset"));
}

}  // namespace miniray::ml
