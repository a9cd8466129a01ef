// Lines of CSV files (train/data/csv_options.h). Not for users.

#ifndef MINIRAY_TRAIN_DATA_CSV_SOURCE_H_
#define MINIRAY_TRAIN_DATA_CSV_SOURCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/data/block_source.h"
#include "train/data/csv_options.h"

namespace miniray::train {

inline constexpr char kCsvKind[] = "csv";

class CsvSource : public BlockSource {
 public:
  // Errors: INVALID_ARGUMENT, columns and fields that do not fit.
  static absl::StatusOr<std::shared_ptr<const BlockSource>> Create(
      SourceSpec spec);

  absl::StatusOr<std::unique_ptr<RecordReader>> Open(
      const SourceBlock& block) const override;

 private:
  explicit CsvSource(SourceSpec spec) : BlockSource(std::move(spec)) {}
};

// Finds the lines of the files. Errors: those of Dataset::FromCsv.
absl::StatusOr<SourceSpec> SpecOfCsv(const std::vector<std::string>& paths,
                                     const CsvOptions& options);

// Cuts a line at its delimiters. Fields that stand in quotes come without them.
// Errors: INVALID_ARGUMENT, a quote that is not closed.
absl::Status SplitCsvLine(absl::string_view line, char delimiter,
                          std::vector<std::string>* fields);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_CSV_SOURCE_H_
