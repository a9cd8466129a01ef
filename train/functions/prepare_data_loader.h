// Context::PrepareDataLoader: this rank's samples of a LibTorch data set.
//
//   auto loader = ctx.PrepareDataLoader(
//       torch::data::datasets::MNIST(dir).map(
//           torch::data::transforms::Normalize<>(0.13, 0.31)),
//       {.batch_size = 128, .workers = 2});
//   for (int epoch = start; epoch < epochs; ++epoch) {
//     loader.SetEpoch(epoch);
//     for (auto& batch : loader) { ... batch.data, batch.target ... }
//   }
//
// Batches of tensors come on the rank's device.
//
// Needs LibTorch's data headers, which are slow to compile: include it where
// the function is.

#ifndef MINIRAY_TRAIN_FUNCTIONS_PREPARE_DATA_LOADER_H_
#define MINIRAY_TRAIN_FUNCTIONS_PREPARE_DATA_LOADER_H_

#include <stdexcept>
#include <string>
#include <utility>

#include "train/data/data_loader.h"
#include "train/functions/context.h"

namespace miniray::train {

template <class Dataset>
auto Context::PrepareDataLoader(Dataset dataset,
                                const DataLoaderOptions& options) const {
  DataLoaderOptions own = options;
  if (own.device.empty()) own.device = device();
  auto loader =
      train::PrepareDataLoader(std::move(dataset), rank(), world_size(), own);
  if (loader.ok()) return *std::move(loader);
  throw std::invalid_argument(std::string(loader.status().message()));
}

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_PREPARE_DATA_LOADER_H_
