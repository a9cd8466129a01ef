// What a Dataset consists of: blocks of records, of known lengths, each read
// front to back. Not for users.

#ifndef MINIRAY_TRAIN_DATA_BLOCK_SOURCE_H_
#define MINIRAY_TRAIN_DATA_BLOCK_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"
#include "train/data/csv_options.h"
#include "train/data/record_reader.h"
#include "train/data/row.h"

namespace miniray::train {

// A file as it was when the data set was made.
struct SourceFile {
  std::string path;
  int64_t bytes = 0;
};
MINIRAY_STRUCT(SourceFile, path, bytes);

struct SourceBlock {
  int64_t records = 0;
  // Of sources of files: which; where in it the block begins, and with which
  // record and (CSV) line, counted from 0 and from 1.
  int64_t file = 0;
  int64_t offset_bytes = 0;
  int64_t first_record = 0;
  int64_t first_line = 0;
};
MINIRAY_STRUCT(SourceBlock, records, file, offset_bytes, first_record,
               first_line);

// How a data set travels.
struct SourceSpec {
  std::string kind;  // "csv", "files" or "memory"
  std::vector<std::string> columns;
  std::vector<SourceFile> files;
  std::vector<SourceBlock> blocks;
  std::string format;                // files
  std::vector<CsvColumn> csv;        // csv: columns as resolved
  std::vector<int64_t> csv_indices;  // Of their fields in a line, one by one.
  int64_t csv_fields = 0;            // Of a line.
  char delimiter = ',';
  bool header = true;
  ReadOnly<NamedTensors> tensors;  // memory; rows are copied into batches
};
MINIRAY_STRUCT(SourceSpec, kind, columns, files, blocks, format, csv,
               csv_indices, csv_fields, delimiter, header, tensors);
MINIRAY_STRUCT(CsvColumn, name, fields, dtype);

// Thread-safe: nothing changes.
class BlockSource {
 public:
  virtual ~BlockSource() = default;

  const ColumnNames& columns() const { return columns_; }
  const std::vector<SourceBlock>& blocks() const { return spec_->blocks; }
  int64_t size() const { return size_; }  // Records.

  // Opens a block at its first record. The reader may give more records than
  // the block's, those of the next one.
  virtual absl::StatusOr<std::unique_ptr<RecordReader>> Open(
      const SourceBlock& block) const = 0;

  // Returns what errors call record `i` of `block`: "FILE, record 7".
  std::string Describe(const SourceBlock& block, int64_t i) const;

  // Errors: FAILED_PRECONDITION, it cannot travel.
  virtual absl::StatusOr<SourceSpec> Spec() const { return *spec_; }

 protected:
  explicit BlockSource(SourceSpec spec);

  const SourceSpec& spec() const { return *spec_; }
  const std::shared_ptr<const SourceSpec>& shared_spec() const { return spec_; }
  const SourceFile& FileOf(const SourceBlock& block) const {
    return spec_->files[static_cast<size_t>(block.file)];
  }

 private:
  std::shared_ptr<const SourceSpec> spec_;
  ColumnNames columns_;
  int64_t size_ = 0;
};

// Returns the source that `spec` describes. Errors: NOT_FOUND, no such format.
// INVALID_ARGUMENT, it describes none.
absl::StatusOr<std::shared_ptr<const BlockSource>> MakeSource(SourceSpec spec);

// Errors: INVALID_ARGUMENT, no records, or blocks that cannot be.
absl::Status CheckSpec(const SourceSpec& spec);

// Returns the files that `paths` stand for, with their sizes: a folder's by
// name, without hidden ones. Errors: INVALID_ARGUMENT, none. NOT_FOUND and
// others of the system.
absl::StatusOr<std::vector<SourceFile>> FindFiles(
    const std::vector<std::string>& paths);

// Errors: DATA_LOSS, the file is not as large as it was. NOT_FOUND and others
// of the system.
absl::Status CheckUnchanged(const SourceFile& file);

// Errors: INVALID_ARGUMENT, no columns, or two of a name.
absl::Status CheckColumnNames(absl::Span<const std::string> names);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_BLOCK_SOURCE_H_
