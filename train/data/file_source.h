// Files in a user's format, each a block. Not for users.

#ifndef MINIRAY_TRAIN_DATA_FILE_SOURCE_H_
#define MINIRAY_TRAIN_DATA_FILE_SOURCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "train/data/block_source.h"
#include "train/data/record_reader.h"

namespace miniray::train {

inline constexpr char kFilesKind[] = "files";

class FileSource : public BlockSource {
 public:
  FileSource(SourceSpec spec, RecordFormat format)
      : BlockSource(std::move(spec)), format_(std::move(format)) {}

  absl::StatusOr<std::unique_ptr<RecordReader>> Open(
      const SourceBlock& block) const override;
  absl::StatusOr<SourceSpec> Spec() const override;

 private:
  const RecordFormat format_;
};

// Counts the records of the files; those without any are left out. Errors:
// those of Dataset::FromFiles.
absl::StatusOr<SourceSpec> SpecOfFiles(const std::vector<std::string>& paths,
                                       const std::string& format_name,
                                       const RecordFormat& format,
                                       std::vector<std::string> columns);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_FILE_SOURCE_H_
