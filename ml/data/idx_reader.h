// IDX files, the format of MNIST and Fashion-MNIST, plain or gzip.
//
// A file is a big-endian header - two zero bytes, the element type (0x08:
// unsigned byte), the number of dimensions, then each size as uint32 - and the
// elements, row-major.
// Source: LeCun, Cortes, Burges, "The MNIST database", file formats.
//
// A file's sizes are compared with what the file can hold before memory is
// taken for them, and what gzip yields is stored as it comes. Gzip files are
// always read to their end, so that a checksum error shows on every shard.
//
// Errors of all functions: NotFound and the like from opening; DataLoss with
// file, byte offset and what was expected for contents that are not as they
// should be (truncated, wrong magic number, element type or number of
// dimensions, a size of zero or beyond the file, trailing bytes, a label that
// is no class); InvalidArgument for a bad selection; ResourceExhausted for more
// than memory can hold.

#ifndef MINIRAY_ML_DATA_IDX_READER_H_
#define MINIRAY_ML_DATA_IDX_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "ml/data/image_dataset.h"
#include "ml/data/shard.h"

namespace miniray::ml {

// Returns the selected images of a three-dimensional file: uint8 [n, 1, H, W].
absl::StatusOr<at::Tensor> ReadIdxImages(const std::string& path,
                                         const ShardSelection& selection = {});

// Returns all labels of a one-dimensional file: int64 [N], each in
// [0, num_classes).
absl::StatusOr<at::Tensor> ReadIdxLabels(const std::string& path,
                                         int64_t num_classes);

// Reads the selected part of a pair of files.
//
// Further errors: DataLoss if the files' counts differ.
absl::StatusOr<ImageDataset> ReadIdxDataset(
    const std::string& images_path, const std::string& labels_path,
    std::vector<std::string> class_names, const ShardSelection& selection = {});

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_IDX_READER_H_
