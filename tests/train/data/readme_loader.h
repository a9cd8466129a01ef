// The first example of train/data/README.md.

#ifndef MINIRAY_TESTS_TRAIN_DATA_README_LOADER_H_
#define MINIRAY_TESTS_TRAIN_DATA_README_LOADER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "runtime/base/status_macros.h"
#include "train/data/data_loader.h"

namespace miniray {

// README begins.
// `images` is any LibTorch data set that can be asked for a sample by number.
// `state`: empty, or a checkpoint's.
template <class Images>
absl::Status TrainOn(Images images, int rank, int world_size,
                     std::function<void(at::Tensor, at::Tensor)> step,
                     std::string& state) {
  MR_ASSIGN_OR_RETURN(
      auto loader,
      train::PrepareDataLoader(std::move(images), rank, world_size,
                               {.batch_size = 128, .workers = 2, .seed = 7}));
  if (!state.empty()) MR_RETURN_IF_ERROR(loader.Restore(state));
  for (int64_t epoch = loader.epoch(); epoch < 10; ++epoch) {
    for (auto& batch : loader) {  // The next epoch each time.
      step(batch.data, batch.target);
      state = loader.State();  // After this batch.
    }
  }
  return absl::OkStatus();
}
// README ends.

}  // namespace miniray

#endif  // MINIRAY_TESTS_TRAIN_DATA_README_LOADER_H_
