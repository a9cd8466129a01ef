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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ml/data/image_dataset.h"
#include "ml/data/shard.h"
#include "ml/data/split.h"

namespace miniray::ml {

struct ImageFolderOptions {
  // Height and width that pictures are brought to; see ResizeAndCrop.
  int64_t size = 64;
  int64_t channels = 3;  // Or 1: grey.
};

// The selected part of a split, whose pictures stay on the disk until they are
// asked for: for more of them than memory holds. Immutable, so safe to share.
//
// A Prefetcher (prefetcher.h) reads batches ahead.
class ImageFolder {
 public:
  // Lists the pictures, and opens none.
  //
  // Errors: InvalidArgument for a size outside [1, 4096], other channels, a bad
  // selection. NotFound for a missing folder, or one without a picture, with
  // what belongs there.
  static absl::StatusOr<ImageFolder> Open(
      const std::string& dir, Split split,
      const ImageFolderOptions& options = {},
      const ShardSelection& selection = {});

  // Returns those of the pictures, in that order. REQUIRES: each is in
  // [0, size()).
  ImageFolder Select(absl::Span<const int64_t> items) const;

  int64_t size() const { return static_cast<int64_t>(paths_.size()); }
  const ImageFolderOptions& options() const { return options_; }
  const std::vector<std::string>& class_names() const { return class_names_; }
  // Of each picture, an index of class_names.
  const std::vector<int64_t>& labels() const { return labels_; }

  // Reads a picture to `out`, uint8 [channels, size, size].
  // Errors: those of ReadPng and ReadJpeg, with the file. REQUIRES: 0 <= index
  // < size().
  absl::Status Read(int64_t index, uint8_t* out) const;

  // Reads pictures, in that order, in the thread that calls.
  // Errors: InvalidArgument for no index, or one outside [0, size()); those of
  // Read; ResourceExhausted for more than memory can hold.
  absl::StatusOr<ImageBatch> ReadBatch(absl::Span<const int64_t> indices) const;

 private:
  ImageFolder() = default;

  ImageFolderOptions options_;
  std::vector<std::string> paths_;
  std::vector<int64_t> labels_;
  std::vector<std::string> class_names_;
};

// Reads the selected part of a split, on LibTorch's threads. Only its files are
// opened.
//
// Errors: those of ImageFolder; ResourceExhausted for more than memory can
// hold.
absl::StatusOr<ImageDataset> ReadImageFolder(
    const std::string& dir, Split split, const ImageFolderOptions& options = {},
    const ShardSelection& selection = {});

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_IMAGE_FOLDER_READER_H_
