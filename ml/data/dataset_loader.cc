#include "ml/data/dataset_loader.h"

#include <glog/logging.h>

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "ml/data/cifar10_reader.h"
#include "ml/data/fashion_mnist_folder.h"
#include "ml/data/idx_reader.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// Returns `dir`/`file`.gz or, where that does not exist, `dir`/`file`.
std::string IdxPath(const std::string& dir, const std::string& file) {
  const std::string plain = (std::filesystem::path(dir) / file).string();
  std::error_code ignored;
  const std::string gzip = plain + ".gz";
  return std::filesystem::exists(gzip, ignored) ? gzip : plain;
}

// Reads the four files that MNIST and its likes come in. `hint` tells where to
// get them.
absl::StatusOr<ImageDataset> ReadMnistLike(const std::string& dir, Split split,
                                           const ShardSelection& selection,
                                           std::vector<std::string> class_names,
                                           absl::string_view hint) {
  const std::string part = split == Split::kTrain ? "train" : "t10k";
  const std::string images = part + "-images-idx3-ubyte";
  const std::string labels = part + "-labels-idx1-ubyte";
  absl::StatusOr<ImageDataset> dataset =
      ReadIdxDataset(IdxPath(dir, images), IdxPath(dir, labels),
                     std::move(class_names), selection);
  if (absl::IsNotFound(dataset.status())) {
    return absl::NotFoundError(
        absl::StrCat(dataset.status().message(), "; expected ", images, " and ",
                     labels, " in ", dir, ", each plain or with .gz; ", hint));
  }
  return dataset;
}

absl::StatusOr<ImageDataset> ReadFashionMnist(const DatasetOptions& options,
                                              Split split) {
  return ReadMnistLike(
      options.data_dir.empty() ? kFashionMnistFolder : options.data_dir, split,
      options.selection,
      {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt",
       "Sneaker", "Bag", "Ankle boot"},
      options.data_dir.empty()
          ? "install them: apt-get install dataset-fashion-mnist"
          : "or leave data_dir empty and install them: apt-get install "
            "dataset-fashion-mnist");
}

absl::StatusOr<ImageDataset> ReadMnist(const DatasetOptions& options,
                                       Split split) {
  if (options.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "needs data_dir, a folder with train-images-idx3-ubyte, "
        "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte, each plain or with .gz");
  }
  return ReadMnistLike(options.data_dir, split, options.selection,
                       {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
                       "copy MNIST's four files there");
}

absl::StatusOr<ImageDataset> ReadCifar10(const DatasetOptions& options,
                                         Split split) {
  if (options.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "needs data_dir: cifar-10-binary.tar.gz, a folder with it or one that "
        "it was unpacked in, or a folder with data_batch_1.bin to "
        "data_batch_5.bin and test_batch.bin");
  }
  return ReadCifar10Binary(options.data_dir, split, options.selection);
}

absl::StatusOr<ImageDataset> ReadFolder(const DatasetOptions& options,
                                        Split split) {
  if (options.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "needs data_dir, a folder with train and test, in which there is a "
        "folder of .png and .jpg files for each class");
  }
  return ReadImageFolder(options.data_dir, split, options.image_folder,
                         options.selection);
}

absl::StatusOr<ImageDataset> ReadSynthetic(const DatasetOptions& options,
                                           Split split) {
  return MakeSyntheticDataset(options.synthetic, split, options.selection);
}

class Registry {
 public:
  // Never destroyed: static objects of plug-ins may outlive any other order.
  static Registry& Get() {
    static Registry* const registry = new Registry;
    return *registry;
  }

  absl::Status Add(const std::string& name, DatasetReader reader) {
    if (name.empty() || reader == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data set '", name, "' needs a name and a reader to be registered"));
    }
    absl::MutexLock lock(&mu_);
    if (!readers_.emplace(name, std::move(reader)).second) {
      return absl::AlreadyExistsError(absl::StrCat(
          "data set '", name, "' is registered already; its reader stays"));
    }
    return absl::OkStatus();
  }

  // Returns an empty function for an unknown name.
  DatasetReader Find(const std::string& name) const {
    absl::MutexLock lock(&mu_);
    const auto found = readers_.find(name);
    return found == readers_.end() ? nullptr : found->second;
  }

  std::vector<std::string> Names() const {
    absl::MutexLock lock(&mu_);
    std::vector<std::string> names;
    for (const auto& entry : readers_) names.push_back(entry.first);
    return names;
  }

 private:
  Registry()
      : readers_{{"cifar10", &ReadCifar10},
                 {"fashion-mnist", &ReadFashionMnist},
                 {"image-folder", &ReadFolder},
                 {"mnist", &ReadMnist},
                 {"synthetic", &ReadSynthetic}} {}

  mutable absl::Mutex mu_;
  std::map<std::string, DatasetReader> readers_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<ImageDataset> ReadWith(const DatasetReader& reader,
                                      const DatasetOptions& options) {
  MR_ASSIGN_OR_RETURN(const Split split, ParseSplit(options.split));
  MR_ASSIGN_OR_RETURN(ImageDataset dataset, reader(options, split));
  MR_RETURN_IF_ERROR(ValidateImageDataset(dataset));
  return dataset;
}

}  // namespace

absl::StatusOr<ImageDataset> LoadImageDataset(const DatasetOptions& options) {
  const DatasetReader reader = Registry::Get().Find(options.name);
  if (reader == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown data set '", options.name,
                     "'; known: ", absl::StrJoin(RegisteredDatasets(), ", ")));
  }
  absl::StatusOr<ImageDataset> dataset = ReadWith(reader, options);
  if (!dataset.ok()) {
    return Annotate(dataset.status(),
                    absl::StrCat("data set '", options.name, "'"));
  }
  return dataset;
}

absl::StatusOr<ImageDataset> LoadImageShard(DatasetOptions options,
                                            train::Sharding sharding,
                                            int shard_id, int num_shards) {
  if (sharding.method == train::ShardMethod::kContiguous) {
    // Readers need not read the rest.
    options.selection.shard_id = shard_id;
    options.selection.num_shards = num_shards;
    return LoadImageDataset(options);
  }
  MR_ASSIGN_OR_RETURN(const ImageDataset all, LoadImageDataset(options));
  sharding.labels = {all.labels.data_ptr<int64_t>(),
                     static_cast<size_t>(all.labels.numel())};
  MR_ASSIGN_OR_RETURN(
      const std::vector<int64_t> items,
      train::ShardItems(all.size(), shard_id, num_shards, sharding));
  MR_ASSIGN_OR_RETURN(ImageBatch shard, GatherBatch(all, items));
  return ImageDataset{.images = std::move(shard.images),
                      .labels = std::move(shard.labels),
                      .class_names = all.class_names};
}

absl::Status RegisterDataset(const std::string& name, DatasetReader reader) {
  return Registry::Get().Add(name, std::move(reader));
}

std::vector<std::string> RegisteredDatasets() {
  return Registry::Get().Names();
}

DatasetRegistrar::DatasetRegistrar(const std::string& name,
                                   DatasetReader reader) {
  const absl::Status status = RegisterDataset(name, std::move(reader));
  if (!status.ok()) LOG(ERROR) << status.message();
}

}  // namespace miniray::ml
