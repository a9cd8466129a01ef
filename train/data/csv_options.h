// How CSV files become columns of tensors.
//
// A record is a line. Fields are separated by `delimiter`; one that contains it
// stands in double quotes, and a quote in such a field is doubled (RFC 4180;
// but a field cannot contain the end of a line). Lines end with LF or CR LF;
// empty ones are passed over, and so is a byte order mark. Numbers are as
// absl::SimpleAtod and SimpleAtoi read them, blanks around them ignored.

#ifndef MINIRAY_TRAIN_DATA_CSV_OPTIONS_H_
#define MINIRAY_TRAIN_DATA_CSV_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "c10/core/ScalarType.h"

namespace miniray::train {

// A column of the data set, made of one or more fields of a line.
struct CsvColumn {
  std::string name;
  // By the header's names; without a header "0", "1", ... by position. Empty:
  // the field called `name`, as a scalar. Otherwise a row is [F], or a scalar
  // if there is but one.
  std::vector<std::string> fields;
  at::ScalarType dtype = at::kFloat;  // kFloat, kDouble, kInt or kLong.
};

struct CsvOptions {
  // None: every field of the first file is a column of float32 scalars.
  std::vector<CsvColumn> columns;
  char delimiter = ',';
  bool header = true;  // The first line of each file names the fields.
  // Lines that stay together when blocks are shuffled; and what is read in vain
  // at most when a rank's part begins within a block.
  int64_t block_bytes = int64_t{1} << 20;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_CSV_OPTIONS_H_
