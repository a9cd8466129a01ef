#include "ml/metrics/fid_worker.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ml/data/cifar10_reader.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/fashion_mnist_folder.h"
#include "ml/data/image_dataset.h"
#include "ml/data/image_folder_reader.h"
#include "ml/data/prefetcher.h"
#include "ml/data/split.h"
#include "ml/gan/model_file.h"
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

// The cache may lie in the folder, and changes with every run.
bool IsOfCache(const fs::path& path) {
  const std::string name = path.filename().string();
  return absl::StartsWith(name, "real-") && absl::EndsWith(name, ".stats");
}

// A hash of all files of a folder, or of the one file. Of nothing, if there is
// none.
absl::StatusOr<std::string> HashFiles(const fs::path& root) {
  std::vector<std::string> lines;
  std::error_code error;
  const fs::file_status status = fs::status(root, error);
  if (status.type() == fs::file_type::regular) {
    lines.push_back(DescribeFile(root, ""));
  } else if (status.type() != fs::file_type::not_found) {
    // Without skip_permission_denied, the first folder that may not be read
    // would be the last one.
    fs::recursive_directory_iterator entry(
        root,
        fs::directory_options::follow_directory_symlink |
            fs::directory_options::skip_permission_denied,
        error);
    for (; !error && entry != fs::recursive_directory_iterator();
         entry.increment(error)) {
      std::error_code ignored;
      if (!entry->is_regular_file(ignored) || IsOfCache(entry->path())) {
        continue;
      }
      lines.push_back(DescribeFile(
          entry->path(), entry->path().lexically_relative(root).string()));
    }
    // A part of the files would hide changes of the others.
    if (error) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot list ", root.string(), ": ", error.message()));
    }
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

// Whether the images are pictures that need not be held in memory. Without a
// folder it is LoadImageDataset that says what is missing.
bool IsPictures(const FidData& data) {
  return data.dataset == "image-folder" && !data.data_dir.empty();
}

// As errors of LoadImageDataset begin.
std::string DatasetName(const FidData& data) {
  return absl::StrCat("data set '", data.dataset, "'");
}

absl::StatusOr<ImageFolder> OpenPictures(const DatasetOptions& load) {
  MR_ASSIGN_OR_RETURN(const Split split, ParseSplit(load.split));
  return ImageFolder::Open(load.data_dir, split, load.image_folder,
                           load.selection);
}

absl::StatusOr<int64_t> CountImages(const FidData& data) {
  if (IsPictures(data)) {
    MR_ASSIGN_OR_RETURN(const ImageFolder folder,
                        OpenPictures(LoadOptions(data)));
    return folder.size();
  }
  if (data.dataset != "cifar10" || data.data_dir.empty()) return 0;
  MR_ASSIGN_OR_RETURN(const Split split, ParseSplit(data.split));
  MR_ASSIGN_OR_RETURN(const int64_t all,
                      CountUnpackedCifar10(data.data_dir, split));
  return data.limit > 0 ? std::min(all, data.limit) : all;
}

}  // namespace

absl::StatusOr<std::string> DataIdentity(const FidData& data) {
  std::string files = "none";
  if (!data.data_dir.empty()) {
    MR_ASSIGN_OR_RETURN(files, HashFiles(data.data_dir));
  } else if (data.dataset == "fashion-mnist") {
    MR_ASSIGN_OR_RETURN(files, HashFiles(kFashionMnistFolder));
  } else if (data.dataset != "synthetic") {
    return absl::FailedPreconditionError(
        absl::StrCat(DatasetName(data),
                     " has no data_dir by whose files one could see "
                     "that the images are still the same"));
  }
  return absl::StrCat("data set ", data.dataset, " in '", data.data_dir,
                      "', split ", data.split, ", limit ", data.limit,
                      ", pictures of ", data.image_channels, "x",
                      data.image_size, "x", data.image_size, ", files ", files);
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

absl::StatusOr<int64_t> FidWorker::CountUnpacked(const FidData& data) const {
  absl::StatusOr<int64_t> count = CountImages(data);
  if (!count.ok()) return Annotate(count.status(), DatasetName(data));
  return count;
}

absl::StatusOr<FeatureStatistics> FidWorker::RealStatistics(const FidData& data,
                                                            int shard,
                                                            int num_shards) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  DatasetOptions load = LoadOptions(data);
  load.selection.shard_id = shard;
  load.selection.num_shards = num_shards;
  if (!IsPictures(data)) {
    MR_ASSIGN_OR_RETURN(const ImageDataset images, LoadImageDataset(load));
    MR_RETURN_IF_ERROR(CheckShape(
        {images.channels(), images.height(), images.width()}, data.dataset));
    return StatisticsOfImages(
        images.size(),
        [&](int64_t begin, int64_t end) {
          return images.images.slice(0, begin, end);
        },
        *extractor_, on_progress_);
  }
  const absl::StatusOr<ImageFolder> folder = OpenPictures(load);
  if (!folder.ok()) return Annotate(folder.status(), DatasetName(data));
  const ImageFolderOptions& options = folder->options();
  MR_RETURN_IF_ERROR(
      CheckShape({options.channels, options.size, options.size}, data.dataset));
  // Reading may take as long as computing. Not more: of large pictures each
  // thread resizes with LibTorch's own.
  const int threads = std::clamp(at::get_num_threads(), 2, 8);
  Prefetcher<ImageBatch> ahead(
      (folder->size() + kFeatureBatch - 1) / kFeatureBatch,
      [&folder](int64_t batch) {
        const int64_t first = batch * kFeatureBatch;
        std::vector<int64_t> items(static_cast<size_t>(
            std::min(kFeatureBatch, folder->size() - first)));
        std::iota(items.begin(), items.end(), first);
        return folder->ReadBatch(items);
      },
      {.threads = threads, .ahead = threads + 1});
  const auto next = [&](int64_t, int64_t) -> absl::StatusOr<at::Tensor> {
    absl::StatusOr<ImageBatch> batch = ahead.Next();
    if (!batch.ok()) return Annotate(batch.status(), DatasetName(data));
    return std::move(batch->images);
  };
  return StatisticsOfImages(folder->size(), next, *extractor_, on_progress_);
}

absl::Status FidWorker::CheckShape(const ImageShape& shape,
                                   const std::string& dataset) const {
  if (shape == shape_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the images of ", dataset, " are ", shape.ToString(),
      ", those of the generator ", shape_.ToString(),
      "; expected the data set that it was trained on, or one of the same "
      "shape"));
}

absl::StatusOr<FeatureStatistics> FidWorker::GeneratedStatistics(
    uint64_t seed, int64_t first, int64_t count) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return StatisticsOfGenerator(seed, first, count, *generator_, *extractor_,
                               on_progress_);
}

absl::Status FidWorker::CheckLoaded() const {
  if (extractor_ != nullptr && generator_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has no extractor or generator yet: call LoadExtractor and "
      "LoadGenerator first");
}

}  // namespace miniray::ml
