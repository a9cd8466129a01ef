// Labelled images in memory, and the two steps from there to a model's input.
//
// Shape letters: N images, C channels, H height, W width, B batch.

#ifndef MINIRAY_ML_DATA_IMAGE_DATASET_H_
#define MINIRAY_ML_DATA_IMAGE_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace miniray::ml {

// Images stay bytes until a batch needs them: a quarter of the memory of
// float32. Copies share the tensors.
struct ImageDataset {
  at::Tensor images;                     // uint8 [N, C, H, W], contiguous, CPU.
  at::Tensor labels;                     // int64 [N], contiguous, CPU.
  std::vector<std::string> class_names;  // Label k means class_names[k].

  // The sizes need the tensors to be set.
  int64_t size() const { return images.size(0); }
  int64_t channels() const { return images.size(1); }
  int64_t height() const { return images.size(2); }
  int64_t width() const { return images.size(3); }
  int64_t num_classes() const {
    return static_cast<int64_t>(class_names.size());
  }
};

// Checks what the comments on the fields promise, and that every label is a
// class. Readers that come from outside this library are held to it.
//
// Errors: InvalidArgument that names the field, what it is and what it should
// be.
absl::Status ValidateImageDataset(const ImageDataset& dataset);

// A mini-batch.
struct ImageBatch {
  at::Tensor images;  // uint8 [B, C, H, W].
  at::Tensor labels;  // int64 [B].
};

// Returns copies of the images and labels at `indices`, in that order.
//
// Errors: InvalidArgument for no index, or one outside [0, dataset.size()).
absl::StatusOr<ImageBatch> GatherBatch(const ImageDataset& dataset,
                                       absl::Span<const int64_t> indices);

// Returns images scaled to float32 in [-1, 1]: x / 127.5 - 1, the range of a
// generator's tanh. Same shape and device.
//
// images: uint8, any shape. Throws c10::Error for another dtype.
at::Tensor ToUnitRange(const at::Tensor& images);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_IMAGE_DATASET_H_
