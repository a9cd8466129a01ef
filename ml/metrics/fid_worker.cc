#include "ml/metrics/fid_worker.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ml/data/dataset_loader.h"
#include "ml/gan/model_file.h"
#include "ml/image/grid.h"
#include "ml/metrics/statistics_cache.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

namespace fs = std::filesystem;

// A line for a file: its name, size and time of last change. What cannot be
// read is left out; reading the images will tell.
std::string DescribeFile(const fs::path& path, const std::string& name) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return "";
  const auto time = fs::last_write_time(path, error);
  if (error) return "";
  return absl::StrCat(name, " ", size, " ",
                      static_cast<int64_t>(time.time_since_epoch().count()));
}

// A hash of all files of a folder, or of the one file.
std::string HashFiles(const fs::path& root) {
  std::vector<std::string> lines;
  std::error_code error;
  if (fs::is_regular_file(root, error)) {
    lines.push_back(DescribeFile(root, ""));
  }
  fs::recursive_directory_iterator entry(
      root, fs::directory_options::follow_directory_symlink, error);
  for (; !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_regular_file(ignored)) continue;
    lines.push_back(DescribeFile(
        entry->path(), entry->path().lexically_relative(root).string()));
  }
  // Folders are listed in no order.
  std::sort(lines.begin(), lines.end());
  return Sha256(absl::StrJoin(lines, "\n"));
}

DatasetOptions LoadOptions(const FidData& data) {
  DatasetOptions load = {.name = data.dataset,
                         .data_dir = data.data_dir,
                         .split = data.split,
                         .selection = {.limit = data.limit},
                         .image_folder = {.size = data.image_size,
                                          .channels = data.image_channels}};
  // "synthetic" makes as many images as are asked for.
  if (data.limit > 0) load.synthetic.count = data.limit;
  return load;
}

}  // namespace

std::string DataIdentity(const FidData& data) {
  return absl::StrCat(
      "data set ", data.dataset, " in '", data.data_dir, "', split ",
      data.split, ", limit ", data.limit, ", pictures of ", data.image_channels,
      "x", data.image_size, "x", data.image_size, ", files ",
      data.data_dir.empty() ? "of the package" : HashFiles(data.data_dir));
}

absl::Status FidWorker::LoadExtractor(const ExtractorFile& file) {
  MR_ASSIGN_OR_RETURN(extractor_, FeatureExtractor::Create(file));
  return absl::OkStatus();
}

absl::Status FidWorker::LoadGenerator(const std::string& bytes,
                                      const std::string& name) {
  MR_ASSIGN_OR_RETURN(const GanModel model,
                      ParseGanModel(bytes, GanNetwork::kGenerator, name));
  MR_ASSIGN_OR_RETURN(generator_, ImageGenerator::Create(model));
  shape_ = model.shape;
  return absl::OkStatus();
}

absl::StatusOr<std::string> FidWorker::Identity(const FidData& data) const {
  return DataIdentity(data);
}

absl::StatusOr<FeatureStatistics> FidWorker::RealStatistics(const FidData& data,
                                                            int shard,
                                                            int num_shards) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  DatasetOptions load = LoadOptions(data);
  load.selection.shard_id = shard;
  load.selection.num_shards = num_shards;
  MR_ASSIGN_OR_RETURN(const ImageDataset images, LoadImageDataset(load));
  const ImageShape shape = {images.channels(), images.height(), images.width()};
  if (shape != shape_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the images of ", data.dataset, " are ", shape.ToString(),
        ", those of the generator ", shape_.ToString(),
        "; expected the data set that it was trained on, or one of the same "
        "shape"));
  }
  FeatureStatistics statistics;
  for (int64_t begin = 0; begin < images.size(); begin += kBatch) {
    const int64_t end = std::min(begin + kBatch, images.size());
    MR_ASSIGN_OR_RETURN(
        const at::Tensor features,
        extractor_->Extract(images.images.slice(0, begin, end)));
    MR_RETURN_IF_ERROR(statistics.Add(features));
    if (on_progress_ != nullptr) on_progress_(end, images.size());
  }
  return statistics;
}

absl::StatusOr<FeatureStatistics> FidWorker::GeneratedStatistics(
    uint64_t seed, int64_t first, int64_t count) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  if (first < 0 || count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("images [", first, ", ", first, " + ", count,
                     "): expected first >= 0 and at least 1 image"));
  }
  FeatureStatistics statistics;
  for (int64_t done = 0; done < count; done += kBatch) {
    const int64_t size = std::min(kBatch, count - done);
    const at::Tensor images =
        ToUint8(generator_->Generate(seed, first + done, size));
    MR_ASSIGN_OR_RETURN(const at::Tensor features, extractor_->Extract(images));
    MR_RETURN_IF_ERROR(statistics.Add(features));
    if (on_progress_ != nullptr) on_progress_(done + size, count);
  }
  return statistics;
}

absl::Status FidWorker::CheckLoaded() const {
  if (extractor_ != nullptr && generator_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has no extractor or generator yet: call LoadExtractor and "
      "LoadGenerator first");
}

}  // namespace miniray::ml
