// Loads a data set by name.
//
//   MR_ASSIGN_OR_RETURN(
//       ImageDataset data,
//       LoadImageDataset({.name = "cifar10",
//                         .data_dir = "/data/cifar10",
//                         .selection = {.shard_id = 1, .num_shards = 4}}));

#ifndef MINIRAY_ML_DATA_DATASET_LOADER_H_
#define MINIRAY_ML_DATA_DATASET_LOADER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/data/image_dataset.h"
#include "ml/data/image_folder_reader.h"
#include "ml/data/shard.h"
#include "ml/data/split.h"
#include "ml/data/synthetic.h"
#include "train/sharding.h"

namespace miniray::ml {

struct DatasetOptions {
  // "fashion-mnist", "mnist", "cifar10", "image-folder", "synthetic", or a
  // registered name.
  std::string name = "fashion-mnist";

  // Folder of the files; "synthetic" has none. Of cifar10 also its archive.
  //   fashion-mnist: empty means where Debian's package
  //     dataset-fashion-mnist puts it.
  //   mnist: train-images-idx3-ubyte, train-labels-idx1-ubyte and
  //     t10k-... likewise, each plain or with ".gz".
  //   cifar10: see cifar10_reader.h.
  //   image-folder: see image_folder_reader.h.
  std::string data_dir;

  std::string split = "train";  // Or "test".

  // The part to load: readers hold no more than that and a small buffer.
  ShardSelection selection;

  SyntheticOptions synthetic;       // For "synthetic" only.
  ImageFolderOptions image_folder;  // For "image-folder" only.
};

// Loads the selected part of a split. The same for the same options, files and
// library version. Thread-safe.
//
// Errors: InvalidArgument for an unknown name (lists the known ones), an
// unknown split, a missing data_dir or a bad selection; those of the reader
// else. Each starts with the data set's name.
absl::StatusOr<ImageDataset> LoadImageDataset(const DatasetOptions& options);

// Loads a worker's part of what `options` select, all of which is read where
// the parts are not contiguous.
//
// sharding: its labels are set here. Errors: those of LoadImageDataset and
// train::ShardItems.
absl::StatusOr<ImageDataset> LoadImageShard(DatasetOptions options,
                                            train::Sharding sharding,
                                            int shard_id, int num_shards);

// Reads what `options` selects; `split` is options.split, parsed. Called from
// any thread. Its result is checked with ValidateImageDataset.
using DatasetReader = std::function<absl::StatusOr<ImageDataset>(
    const DatasetOptions& options, Split split)>;

// Makes a data set available under `name` in this process. Thread-safe.
//
// Errors: InvalidArgument for an empty name or reader; AlreadyExists for a name
// taken, whose reader stays.
absl::Status RegisterDataset(const std::string& name, DatasetReader reader);

// Returns the names that LoadImageDataset knows, sorted. Thread-safe.
std::vector<std::string> RegisteredDatasets();

// Registers at program start or when a plug-in is loaded:
//
//   const miniray::ml::DatasetRegistrar kSvhn("svhn", &ReadSvhn);
//
// An error of RegisterDataset is logged.
class DatasetRegistrar {
 public:
  DatasetRegistrar(const std::string& name, DatasetReader reader);
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_DATASET_LOADER_H_
