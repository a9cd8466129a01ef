#include "ml/data/image_folder_reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/tensor.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "ml/data/mix64.h"
#include "ml/data/tensor_allocation.h"
#include "ml/image/jpeg.h"
#include "ml/image/png.h"
#include "ml/image/resize.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSize = 4096;
constexpr char kOnlyClass[] = "images";

struct Picture {
  std::string path;  // Within the split's folder.
  std::string class_name;
  uint64_t rank = 0;  // Drawn by the path.
};

bool IsPng(const std::string& path) {
  return absl::EndsWithIgnoreCase(path, ".png");
}

bool IsPicture(const std::string& path) {
  return IsPng(path) || absl::EndsWithIgnoreCase(path, ".jpg") ||
         absl::EndsWithIgnoreCase(path, ".jpeg");
}

uint64_t RankOf(const std::string& path) {
  uint64_t rank = 0;
  for (const char c : path) {
    rank = Mix64(rank ^ static_cast<unsigned char>(c));
  }
  return rank;
}

absl::Status FolderError(const fs::path& folder, const std::error_code& error) {
  return absl::NotFoundError(absl::StrCat(
      "cannot read the folder ", folder.string(), ": ", error.message()));
}

// The folder of a split.
absl::StatusOr<fs::path> FolderOf(const std::string& dir, Split split) {
  std::error_code ignored;
  const fs::path root(dir);
  if (!fs::is_directory(root, ignored)) {
    return absl::NotFoundError(absl::StrCat("there is no folder ", dir));
  }
  const bool has_train = fs::is_directory(root / "train", ignored);
  if (split == Split::kTrain) return has_train ? root / "train" : root;
  for (const char* name : {"test", "val"}) {
    if (fs::is_directory(root / name, ignored)) return root / name;
  }
  return absl::NotFoundError(absl::StrCat(
      dir, " has no folder test or val with a folder for each class"));
}

// All pictures below a folder, in the order that is drawn for them.
absl::StatusOr<std::vector<Picture>> ListPictures(const fs::path& folder) {
  std::vector<Picture> pictures;
  std::error_code error;
  fs::recursive_directory_iterator entry(
      folder, fs::directory_options::follow_directory_symlink, error);
  for (; !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    if (absl::StartsWith(entry->path().filename().string(), ".")) {
      // Whether it is a folder is not asked: of a link, that may fail.
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;
    const std::string path =
        entry->path().lexically_relative(folder).generic_string();
    if (!IsPicture(path) || entry->is_directory(ignored)) continue;
    const size_t slash = path.find('/');
    pictures.push_back(
        {.path = path,
         .class_name = slash == std::string::npos ? "" : path.substr(0, slash),
         .rank = RankOf(path)});
  }
  if (error) return FolderError(folder, error);
  // Where there are folders, what lies beside them is of no class.
  const bool has_classes = std::any_of(
      pictures.begin(), pictures.end(),
      [](const Picture& picture) { return !picture.class_name.empty(); });
  if (has_classes) {
    std::erase_if(pictures, [](const Picture& picture) {
      return picture.class_name.empty();
    });
  } else {
    for (Picture& picture : pictures) picture.class_name = kOnlyClass;
  }
  if (pictures.empty()) {
    return absl::NotFoundError(absl::StrCat(
        folder.string(),
        " has no pictures; expected a folder for each class with .png, .jpg or "
        ".jpeg files"));
  }
  std::sort(pictures.begin(), pictures.end(),
            [](const Picture& a, const Picture& b) {
              return std::tie(a.rank, a.path) < std::tie(b.rank, b.path);
            });
  return pictures;
}

// What a thread has to tell the one that waits for all.
class Failure {
 public:
  void Report(absl::Status status) {
    absl::MutexLock lock(&mu_);
    status_.Update(status);
    any_ = true;
  }
  bool any() const { return any_; }
  absl::Status status() const {
    absl::MutexLock lock(&mu_);
    return status_;
  }

 private:
  std::atomic<bool> any_ = false;
  mutable absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

// A name may lie: one of ImageNet's pictures is a PNG that is called .JPEG.
absl::StatusOr<at::Tensor> ReadPicture(const std::string& path,
                                       int64_t at_least) {
  absl::StatusOr<at::Tensor> image =
      IsPng(path) ? ReadPng(path) : ReadJpeg(path, at_least);
  if (!absl::IsDataLoss(image.status())) return image;
  absl::StatusOr<at::Tensor> other =
      IsPng(path) ? ReadJpeg(path, at_least) : ReadPng(path);
  return other.ok() ? other : image;
}

absl::Status ReadInto(const std::string& path,
                      const ImageFolderOptions& options, uint8_t* out) {
  MR_ASSIGN_OR_RETURN(const at::Tensor image, ReadPicture(path, options.size));
  const at::Tensor ready =
      ResizeAndCrop(WithChannels(image, options.channels), options.size);
  memcpy(out, ready.data_ptr<uint8_t>(), static_cast<size_t>(ready.numel()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImageFolder> ImageFolder::Open(const std::string& dir,
                                              Split split,
                                              const ImageFolderOptions& options,
                                              const ShardSelection& selection) {
  if (options.size < 1 || options.size > kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("images of ", options.size,
                     " pixels a side; expected 1 to ", kMaxSize));
  }
  if (options.channels != 1 && options.channels != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images of ", options.channels, " channels; expected 1 or 3"));
  }
  MR_ASSIGN_OR_RETURN(const fs::path folder, FolderOf(dir, split));
  MR_ASSIGN_OR_RETURN(const std::vector<Picture> pictures,
                      ListPictures(folder));
  MR_ASSIGN_OR_RETURN(
      const ShardRange range,
      SelectRange(static_cast<int64_t>(pictures.size()), selection));

  ImageFolder images;
  images.options_ = options;
  // Of all pictures, so that all shards number them alike.
  std::set<std::string> names;
  for (const Picture& picture : pictures) names.insert(picture.class_name);
  images.class_names_.assign(names.begin(), names.end());
  std::map<std::string, int64_t> numbers;
  for (const std::string& name : images.class_names_) {
    numbers.emplace(name, static_cast<int64_t>(numbers.size()));
  }
  for (int64_t i = range.begin; i < range.end; ++i) {
    images.paths_.push_back((folder / pictures[i].path).string());
    images.labels_.push_back(numbers.at(pictures[i].class_name));
  }
  return images;
}

ImageFolder ImageFolder::Select(absl::Span<const int64_t> items) const {
  ImageFolder selected;
  selected.options_ = options_;
  selected.class_names_ = class_names_;
  for (const int64_t item : items) {
    selected.paths_.push_back(paths_[static_cast<size_t>(item)]);
    selected.labels_.push_back(labels_[static_cast<size_t>(item)]);
  }
  return selected;
}

absl::Status ImageFolder::Read(int64_t index, uint8_t* out) const {
  return ReadInto(paths_[static_cast<size_t>(index)], options_, out);
}

absl::StatusOr<ImageBatch> ImageFolder::ReadBatch(
    absl::Span<const int64_t> indices) const {
  if (indices.empty()) {
    return absl::InvalidArgumentError("a batch needs at least one index");
  }
  for (const int64_t index : indices) {
    if (index < 0 || index >= size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "index ", index, " of a batch; expected 0 to ", size() - 1));
    }
  }
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t bytes = options_.channels * options_.size * options_.size;
  MR_ASSIGN_OR_RETURN(
      const at::Tensor images,
      AllocateBytes(count * bytes, absl::StrCat("a batch of ", count)));
  std::vector<int64_t> labels;
  for (int64_t b = 0; b < count; ++b) {
    const int64_t index = indices[static_cast<size_t>(b)];
    MR_RETURN_IF_ERROR(Read(index, images.data_ptr<uint8_t>() + b * bytes));
    labels.push_back(labels_[static_cast<size_t>(index)]);
  }
  return ImageBatch{.images = images.view({count, options_.channels,
                                           options_.size, options_.size}),
                    .labels = at::tensor(labels)};
}

absl::StatusOr<ImageDataset> ReadImageFolder(const std::string& dir,
                                             Split split,
                                             const ImageFolderOptions& options,
                                             const ShardSelection& selection) {
  MR_ASSIGN_OR_RETURN(const ImageFolder folder,
                      ImageFolder::Open(dir, split, options, selection));
  ImageDataset dataset;
  dataset.class_names = folder.class_names();
  dataset.labels = at::tensor(folder.labels());
  const int64_t bytes = options.channels * options.size * options.size;
  MR_ASSIGN_OR_RETURN(
      const at::Tensor images,
      AllocateBytes(folder.size() * bytes,
                    absl::StrCat(folder.size(), " images of ", dir)));
  dataset.images = images.view(
      {folder.size(), options.channels, options.size, options.size});
  uint8_t* const out = images.data_ptr<uint8_t>();
  Failure failure;
  at::parallel_for(0, folder.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && !failure.any(); ++i) {
      const absl::Status status = folder.Read(i, out + i * bytes);
      if (!status.ok()) failure.Report(status);
    }
  });
  MR_RETURN_IF_ERROR(failure.status());
  return dataset;
}

}  // namespace miniray::ml
