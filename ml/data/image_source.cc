#include "ml/data/image_source.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ml/data/split.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {

absl::StatusOr<ImageSource> ImageSource::Load(const DatasetOptions& options,
                                              train::Sharding sharding,
                                              int shard_id, int num_shards,
                                              bool lazy) {
  if (!lazy) {
    MR_ASSIGN_OR_RETURN(
        ImageDataset dataset,
        LoadImageShard(options, std::move(sharding), shard_id, num_shards));
    return ImageSource(std::move(dataset));
  }
  if (options.name != "image-folder") {
    return absl::InvalidArgumentError(
        absl::StrCat("only an image-folder can stay on the disk (lazy), not '",
                     options.name, "'"));
  }
  if (options.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "data set 'image-folder': needs data_dir, a folder with train and "
        "test, in which there is a folder of .png and .jpg files for each "
        "class");
  }
  MR_ASSIGN_OR_RETURN(const Split split, ParseSplit(options.split));
  MR_ASSIGN_OR_RETURN(
      const ImageFolder all,
      ImageFolder::Open(options.data_dir, split, options.image_folder,
                        options.selection));
  sharding.labels = all.labels();
  MR_ASSIGN_OR_RETURN(
      const std::vector<int64_t> items,
      train::ShardItems(all.size(), shard_id, num_shards, sharding));
  return ImageSource(all.Select(items));
}

int64_t ImageSource::size() const {
  return on_disk() ? folder_->size() : dataset_.size();
}

int64_t ImageSource::channels() const {
  return on_disk() ? folder_->options().channels : dataset_.channels();
}

int64_t ImageSource::height() const {
  return on_disk() ? folder_->options().size : dataset_.height();
}

int64_t ImageSource::width() const {
  return on_disk() ? folder_->options().size : dataset_.width();
}

const std::vector<std::string>& ImageSource::class_names() const {
  return on_disk() ? folder_->class_names() : dataset_.class_names;
}

absl::StatusOr<ImageBatch> ImageSource::Read(
    absl::Span<const int64_t> items) const {
  return on_disk() ? folder_->ReadBatch(items) : GatherBatch(dataset_, items);
}

}  // namespace miniray::ml
