// The second example of train/data/README.md.

#ifndef MINIRAY_TESTS_TRAIN_DATA_README_STREAM_H_
#define MINIRAY_TESTS_TRAIN_DATA_README_STREAM_H_

#include <functional>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "runtime/base/status_macros.h"
#include "train/data/dataset.h"

namespace miniray {

// README begins.
// `folder` holds CSV files with the fields width, height, label, and others.
inline absl::Status TrainOnCsv(
    const std::string& folder, int rank, int world_size,
    std::function<void(at::Tensor, at::Tensor)> step) {
  MR_ASSIGN_OR_RETURN(
      const train::Dataset data,
      train::Dataset::FromCsv({folder},
                              {.columns = {{"x", {"width", "height"}},
                                           {"y", {"label"}, at::kLong}}}));
  MR_ASSIGN_OR_RETURN(train::DatasetShard shard, data.Shard(rank, world_size));
  while (shard.epoch() < 10) {
    for (const train::Batch& batch :
         shard.IterBatches({.batch_size = 64, .shuffle_buffer = 10000})) {
      step(batch["x"], batch["y"]);  // Float [64, 2] and Long [64].
    }
  }
  return absl::OkStatus();
}
// README ends.

}  // namespace miniray

#endif  // MINIRAY_TESTS_TRAIN_DATA_README_STREAM_H_
