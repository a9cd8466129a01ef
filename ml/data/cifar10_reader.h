// CIFAR-10 in its binary version.
//
// Six files of records; a record is one label byte, 0 to 9, and 3072 bytes of
// pixels, [3, 32, 32]: the red plane, then green, then blue, each row-major.
// data_batch_1.bin to data_batch_5.bin are the training split, test_batch.bin
// is the test split; batches.meta.txt names the classes, one a line.
// They come in an archive, cifar-10-binary.tar.gz, in a folder
// cifar-10-batches-bin.
// Source: Krizhevsky, "The CIFAR-10 dataset", binary version.

#ifndef MINIRAY_ML_DATA_CIFAR10_READER_H_
#define MINIRAY_ML_DATA_CIFAR10_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "ml/data/image_dataset.h"
#include "ml/data/shard.h"
#include "ml/data/split.h"

namespace miniray::ml {

// Reads the selected part of a split. `dir` is a folder with the files, or with
// cifar-10-batches-bin, as the archive unpacks; or the archive (a tar file,
// plain or with gzip), or a folder with it. Of unpacked files only the selected
// records are read; an archive is read twice, since its files are in any order,
// and not held. The files may hold any whole number of records; without
// batches.meta.txt the official class names are used.
//
// Errors: NotFound for a missing folder or file, with the files that belong
// there and, where the Python version is found instead, what to do; DataLoss
// with file, byte offset and what was expected for contents that are not as
// they should be (a size that is not a whole number of records, a label above 9
// among the selected records, not ten class names; an archive that ends early
// or has a wrong checksum anywhere); InvalidArgument for a bad selection.
absl::StatusOr<ImageDataset> ReadCifar10Binary(
    const std::string& dir, Split split, const ShardSelection& selection = {});

// Returns how many images unpacked files have of a split, by their sizes; 0 if
// there is only the archive, of which each shard costs as much as all of it.
// Errors: as above.
absl::StatusOr<int64_t> CountUnpackedCifar10(const std::string& dir,
                                             Split split);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_CIFAR10_READER_H_
