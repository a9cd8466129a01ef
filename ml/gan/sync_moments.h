// What becomes of Adam's moments when the workers of a GAN are synchronised. No
// LibTorch here.

#ifndef MINIRAY_ML_GAN_SYNC_MOMENTS_H_
#define MINIRAY_ML_GAN_SYNC_MOMENTS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::ml {

enum class SyncMoments {
  // They stay with their worker, which goes on with them from the new weights.
  kKeep,
  // They are among the weights of both networks, as buffers: averaged like
  // BatchNorm's statistics. Adam's number of steps is the largest of all
  // workers. Three times the bytes.
  kAverage,
  // They are forgotten, with the number of steps: Adam begins anew.
  kReset,
};

// Returns "keep", "average" or "reset"; "" for another value.
absl::string_view SyncMomentsName(SyncMoments moments);

// The inverse. Errors: InvalidArgument, with the names.
absl::StatusOr<SyncMoments> ParseSyncMoments(absl::string_view name);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_SYNC_MOMENTS_H_
