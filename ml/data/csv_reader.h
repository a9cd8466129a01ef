// Tables of numbers in CSV files, as regression has them.
//
// The first line has the columns' names, every other one a number for each of
// them, with commas in between (RFC 4180): names and numbers may stand in
// double quotes, lines end with LF or CRLF, and empty lines do not count. A
// number is what absl::SimpleAtod reads, and finite: a table with gaps is for
// whoever knows what belongs there.
//
// No LibTorch here.

#ifndef MINIRAY_ML_DATA_CSV_READER_H_
#define MINIRAY_ML_DATA_CSV_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::ml {

struct NumberTable {
  std::vector<std::string> columns;  // C names, all different.
  std::vector<double> values;        // [N, C], row-major.

  int64_t num_columns() const { return static_cast<int64_t>(columns.size()); }
  int64_t num_rows() const {
    return columns.empty()
               ? 0
               : static_cast<int64_t>(values.size()) / num_columns();
  }
};

// Reads all of a file; takes eight bytes of memory for each number, and those
// of the file meanwhile. Blanks around fields do not count.
//
// Errors: NOT_FOUND and the like from the system; FAILED_PRECONDITION, it is no
// regular file. DATA_LOSS with file, line and column for what is not as above:
// another number of fields than names, a field that is empty or no finite
// number, a name that is empty or there twice, a quote without end, no rows.
absl::StatusOr<NumberTable> ReadCsv(const std::string& path);

// Writes a table so that ReadCsv reads the same numbers, to the last bit.
// Errors: INVALID_ARGUMENT, a name with a line end, no rows or a part of one, a
// number that is not finite; those of the system.
absl::Status WriteCsv(const NumberTable& table, const std::string& path);

// Returns the place of a column. Errors: INVALID_ARGUMENT with the names that
// there are.
absl::StatusOr<int64_t> ColumnIndex(const NumberTable& table,
                                    absl::string_view name);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_CSV_READER_H_
