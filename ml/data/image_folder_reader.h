// Folders of pictures, a folder for each class, as ImageNet and CelebA have
// them.
//
//   DIR/train/CLASS/....png    the training split
//   DIR/test/CLASS/....jpg     the test split; or DIR/val
//   DIR/CLASS/....jpeg         where there is no DIR/train: the training split
//
// PNG and JPEG, by the ends of the names (.png, .jpg, .jpeg, any case); folders
// within those of classes count as theirs, other files and what begins with a
// dot do not. A split without folders has one class, "images". Classes are
// numbered in the order of their names.
//
// The order of the pictures is drawn by their paths within the split, so that
// each shard has about as much of each class; the same on every machine, and as
// long as no file comes or goes.

#ifndef MINIRAY_ML_DATA_IMAGE_FOLDER_READER_H_
#define MINIRAY_ML_DATA_IMAGE_FOLDER_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "ml/data/image_dataset.h"
#include "ml/data/shard.h"
#include "ml/data/split.h"

namespace miniray::ml {

struct ImageFolderOptions {
  // Height and width that pictures are brought to; see ResizeAndCrop.
  int64_t size = 64;
  int64_t channels = 3;  // Or 1: grey.
};

// Reads the selected part of a split, on LibTorch's threads. Only its files are
// opened.
//
// Errors: InvalidArgument for a size outside [1, 4096], other channels, a bad
// selection. NotFound for a missing folder, or one without a picture, with what
// belongs there. Those of ReadPng and ReadJpeg, with the file, for one that
// cannot be read; ResourceExhausted for more than memory can hold.
absl::StatusOr<ImageDataset> ReadImageFolder(
    const std::string& dir, Split split, const ImageFolderOptions& options = {},
    const ShardSelection& selection = {});

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_IMAGE_FOLDER_READER_H_
