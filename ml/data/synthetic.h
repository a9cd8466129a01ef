// Made-up images for tests and first runs: nothing to download, any shape.

#ifndef MINIRAY_ML_DATA_SYNTHETIC_H_
#define MINIRAY_ML_DATA_SYNTHETIC_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ml/data/image_dataset.h"
#include "ml/data/shard.h"
#include "ml/data/split.h"

namespace miniray::ml {

struct SyntheticOptions {
  int64_t count = 1024;  // Images in each split.
  int64_t channels = 3;
  int64_t height = 32;
  int64_t width = 32;
  int64_t num_classes = 10;
  uint64_t seed = 1;
};

// Returns the selected part of a split of images that a model can learn to tell
// apart and to draw: on a noisy dark ground, class k has a bright tile at the
// k-th place of a square raster, in a shade that depends on class and channel.
// Image i has label i mod num_classes, so every shard sees every class.
//
// Pixels depend on (seed, split, i) only, through integer arithmetic: the same
// on every platform, and for a shard as for the whole. The places are distinct
// as long as height and width are at least the raster's side, the square root
// of num_classes rounded up.
//
// Errors: InvalidArgument for a size below 1, more than 2^36 pixels in the
// split, or a bad selection; ResourceExhausted for more than memory can hold.
absl::StatusOr<ImageDataset> MakeSyntheticDataset(
    const SyntheticOptions& options, Split split,
    const ShardSelection& selection = {});

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_SYNTHETIC_H_
