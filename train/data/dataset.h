// Dataset: records that are streamed to the ranks of a training, out of files
// that do not fit in memory.
//
//   MR_ASSIGN_OR_RETURN(auto data, train::Dataset::FromCsv(
//       {"/data/train"}, {.columns = {{"x", {"width", "height"}},
//                                     {"y", {"label"}, at::kLong}}}));
//   // On a rank:
//   MR_ASSIGN_OR_RETURN(auto shard, data.Shard(rank, world_size));
//   for (train::Batch& batch : shard.IterBatches({.batch_size = 64})) {
//     ... batch["x"], [64, 2] ... batch["y"], [64] ...
//   }
//
// A Dataset is a table of contents, which is why making one counts the records
// of its files; records are read when they are needed, where they are needed.
// A copy is cheap, and it travels as an argument of an actor's method: paths,
// not contents, so files must be at the same paths on all machines. Of a data
// set made from tensors or rows, the contents travel; put once (Cluster::Put),
// they lie in each node's memory once.
//
// Thread-safe: nothing changes once it is made.

#ifndef MINIRAY_TRAIN_DATA_DATASET_H_
#define MINIRAY_TRAIN_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"
#include "train/data/csv_options.h"
#include "train/data/dataset_shard.h"
#include "train/data/record_reader.h"
#include "train/data/row.h"

namespace miniray::train {

class BlockSource;

struct FilesOptions {
  // Of the rows that the reader gives, in order; at least one, all different.
  std::vector<std::string> columns;
};

struct RowsOptions {
  // Rows that stay together when blocks are shuffled, from 1.
  int64_t rows_per_block = 256;
};

class Dataset {
 public:
  // Of no use but to be assigned to.
  Dataset() = default;
  explicit Dataset(std::shared_ptr<const BlockSource> source)
      : source_(std::move(source)) {}

  // Records of files in a user's format (train/data/record_reader.h), by its
  // name. A path of a folder stands for the files in it, by name, hidden ones
  // excepted. A file is a block.
  //
  // Errors: INVALID_ARGUMENT, no paths, columns or records at all. NOT_FOUND,
  // no such format or file. What the reader says while it counts, with file and
  // record.
  static absl::StatusOr<Dataset> FromFiles(std::vector<std::string> paths,
                                           const std::string& format,
                                           FilesOptions options);
  // With a format that has no name: such a data set cannot travel.
  static absl::StatusOr<Dataset> FromFiles(std::vector<std::string> paths,
                                           RecordFormat format,
                                           FilesOptions options);

  // Rows of CSV files (train/data/csv_options.h). Blocks are of about
  // CsvOptions::block_bytes, so few large files are dealt as well as many.
  //
  // Errors: as above. INVALID_ARGUMENT, a header lacks a field that a column
  // wants. Numbers are parsed as they are read, not here.
  static absl::StatusOr<Dataset> FromCsv(std::vector<std::string> paths,
                                         CsvOptions options = {});

  // Row i is element i of each tensor's first dimension. The tensors' memory is
  // referred to: let it be. Errors: INVALID_ARGUMENT, none, no rows, or not
  // equally many.
  static absl::StatusOr<Dataset> FromTensors(NamedTensors columns,
                                             RowsOptions options = {});

  // Errors: INVALID_ARGUMENT, no rows, or rows that StackRows refuses.
  static absl::StatusOr<Dataset> FromRows(std::vector<std::string> columns,
                                          const std::vector<Row>& rows,
                                          RowsOptions options = {});

  int64_t size() const;  // Records, from 1.
  const std::vector<std::string>& columns() const;

  // Returns what `rank` of `world_size` reads: its part of each epoch. Errors:
  // INVALID_ARGUMENT, there is no such rank. FAILED_PRECONDITION, a data set
  // that was not made.
  absl::StatusOr<DatasetShard> Shard(int rank, int world_size) const;

 private:
  friend struct Codec<Dataset>;

  std::shared_ptr<const BlockSource> source_;
};

}  // namespace miniray::train

namespace miniray {

// Errors of Encode: FAILED_PRECONDITION, its format has no name. Of Decode:
// NOT_FOUND, this program has no format of that name; INVALID_ARGUMENT, not a
// data set.
template <>
struct Codec<train::Dataset> {
  static absl::Status Encode(const train::Dataset& dataset, WireWriter* out);
  static absl::Status Decode(const ValueView& view, train::Dataset* out);
};

}  // namespace miniray

#endif  // MINIRAY_TRAIN_DATA_DATASET_H_
