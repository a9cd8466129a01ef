// What a worker trains on: its part of a data set, in memory or, of pictures
// that are more than memory holds, on the disk.
//
//   MR_ASSIGN_OR_RETURN(
//       const ImageSource source,
//       ImageSource::Load(options, sharding, shard_id, num_shards, lazy));
//   MR_ASSIGN_OR_RETURN(const ImageBatch batch, source.Read(batches[b]));

#ifndef MINIRAY_ML_DATA_IMAGE_SOURCE_H_
#define MINIRAY_ML_DATA_IMAGE_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/image_dataset.h"
#include "ml/data/image_folder_reader.h"
#include "train/sharding.h"

namespace miniray::ml {

// Immutable, so safe to share.
class ImageSource {
 public:
  // Takes a worker's part of what `options` select.
  //
  // sharding: its labels are set here.
  // lazy: of an image-folder, pictures stay on the disk until Read wants them;
  //   the same ones in the same order.
  //
  // Errors: those of LoadImageShard; lazy, those of ImageFolder::Open and
  // train::ShardItems. INVALID_ARGUMENT, `lazy` with a data set that is no
  // image-folder, or with no data_dir.
  static absl::StatusOr<ImageSource> Load(const DatasetOptions& options,
                                          train::Sharding sharding,
                                          int shard_id, int num_shards,
                                          bool lazy);

  int64_t size() const;
  int64_t channels() const;
  int64_t height() const;
  int64_t width() const;
  // Label k means class_names()[k].
  const std::vector<std::string>& class_names() const;
  int64_t num_classes() const {
    return static_cast<int64_t>(class_names().size());
  }

  // Whether Read opens files, which threads ahead of the caller had better do
  // (prefetcher.h).
  bool on_disk() const { return folder_.has_value(); }

  // Returns the images and labels at `items`, in that order. Thread-safe.
  // Errors: those of GatherBatch; on the disk, of ImageFolder::ReadBatch.
  absl::StatusOr<ImageBatch> Read(absl::Span<const int64_t> items) const;

 private:
  explicit ImageSource(ImageDataset dataset) : dataset_(std::move(dataset)) {}
  explicit ImageSource(ImageFolder folder) : folder_(std::move(folder)) {}

  ImageDataset dataset_;
  std::optional<ImageFolder> folder_;  // In place of it.
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_IMAGE_SOURCE_H_
