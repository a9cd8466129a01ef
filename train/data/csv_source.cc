#include "train/data/csv_source.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "ATen/ATen.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "train/data/line_reader.h"

namespace miniray::train {
namespace {

constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

bool Parse(absl::string_view text, float* out) {
  return absl::SimpleAtof(text, out);
}
bool Parse(absl::string_view text, double* out) {
  return absl::SimpleAtod(text, out);
}
template <class Int>
bool Parse(absl::string_view text, Int* out) {
  return absl::SimpleAtoi(text, out);
}

absl::string_view Expected(at::ScalarType dtype) {
  if (dtype == at::kInt) return "an integer of 32 bits";
  return dtype == at::kLong ? "an integer" : "a number";
}

class CsvReader : public RecordReader {
 public:
  CsvReader(std::shared_ptr<const SourceSpec> spec, LineReader lines,
            int64_t line)
      : spec_(std::move(spec)), lines_(std::move(lines)), line_(line) {}

  absl::StatusOr<std::optional<Row>> Next() override {
    MR_ASSIGN_OR_RETURN(const auto line, NextLine());
    if (!line.has_value()) return std::nullopt;
    const std::string where = absl::StrCat("line ", line_);
    if (const absl::Status split =
            SplitCsvLine(line->text, spec_->delimiter, &fields_);
        !split.ok()) {
      return Annotate(split, where);
    }
    if (static_cast<int64_t>(fields_.size()) != spec_->csv_fields) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has ", fields_.size(), " fields; expected ",
                       spec_->csv_fields));
    }
    Row row;
    row.reserve(spec_->csv.size());
    size_t first = 0;  // Of the column's fields in csv_indices.
    for (const CsvColumn& column : spec_->csv) {
      at::Tensor tensor;
      if (const absl::Status parsed = ParseColumn(column, first, &tensor);
          !parsed.ok()) {
        return Annotate(parsed, where);
      }
      row.push_back(std::move(tensor));
      first += column.fields.size();
    }
    return row;
  }

  absl::Status Skip(int64_t count) override {
    for (int64_t i = 0; i < count; ++i) {
      MR_ASSIGN_OR_RETURN(const auto line, NextLine());
      if (!line.has_value()) {
        return absl::DataLossError(
            "the file has fewer lines than it had when "
            "the data set was made");
      }
    }
    return absl::OkStatus();
  }

 private:
  // The next line that is not empty; line_ is its number then.
  absl::StatusOr<std::optional<LineReader::Line>> NextLine() {
    while (true) {
      MR_ASSIGN_OR_RETURN(const auto line, lines_.Next());
      if (!line.has_value()) return line;
      ++line_;
      if (!line->text.empty()) return line;
    }
  }

  absl::Status ParseColumn(const CsvColumn& column, size_t first,
                           at::Tensor* tensor) {
    switch (column.dtype) {
      case at::kFloat:
        return ParseAs<float>(column, first, tensor);
      case at::kDouble:
        return ParseAs<double>(column, first, tensor);
      case at::kInt:
        return ParseAs<int32_t>(column, first, tensor);
      default:
        return ParseAs<int64_t>(column, first, tensor);
    }
  }

  template <class T>
  absl::Status ParseAs(const CsvColumn& column, size_t first,
                       at::Tensor* tensor) {
    const auto count = static_cast<int64_t>(column.fields.size());
    *tensor = count == 1 ? at::empty({}, column.dtype)
                         : at::empty({count}, column.dtype);
    T* const out = tensor->data_ptr<T>();
    for (size_t i = 0; i < column.fields.size(); ++i) {
      const std::string& text =
          fields_[static_cast<size_t>(spec_->csv_indices[first + i])];
      if (!Parse(text, &out[i])) {
        return absl::InvalidArgumentError(absl::StrCat(
            "field \"", column.fields[i], "\" is \"", text.substr(0, 100),
            "\"; expected ", Expected(column.dtype)));
      }
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const SourceSpec> spec_;
  LineReader lines_;
  int64_t line_;  // The number of the last line that was read.
  std::vector<std::string> fields_;
};

// The names of the fields of a first line.
absl::StatusOr<std::vector<std::string>> FieldNames(const std::string& path,
                                                    absl::string_view line,
                                                    const CsvOptions& options) {
  std::vector<std::string> fields;
  if (const absl::Status split = SplitCsvLine(line, options.delimiter, &fields);
      !split.ok()) {
    return Annotate(split, absl::StrCat(path, ", line 1"));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    fields[i] = options.header
                    ? std::string(absl::StripAsciiWhitespace(fields[i]))
                    : absl::StrCat(i);
  }
  return fields;
}

// Says which fields the columns are made of.
absl::Status ResolveColumns(const CsvOptions& options,
                            const std::vector<std::string>& names,
                            const std::string& path, SourceSpec* spec) {
  spec->csv = options.columns;
  if (spec->csv.empty()) {
    for (const std::string& name : names) spec->csv.push_back({.name = name});
  }
  for (CsvColumn& column : spec->csv) {
    if (column.dtype != at::kFloat && column.dtype != at::kDouble &&
        column.dtype != at::kInt && column.dtype != at::kLong) {
      return absl::InvalidArgumentError(
          absl::StrCat("column \"", column.name, "\" is to be of type ",
                       c10::toString(column.dtype),
                       "; expected kFloat, kDouble, kInt or kLong"));
    }
    if (column.fields.empty()) column.fields = {column.name};
    for (const std::string& field : column.fields) {
      size_t index = 0;
      while (index < names.size() && names[index] != field) ++index;
      if (index == names.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, " has no field \"", field, "\", which column \"", column.name,
            "\" is made of; it has: ", absl::StrJoin(names, ", ")));
      }
      spec->csv_indices.push_back(static_cast<int64_t>(index));
    }
    spec->columns.push_back(column.name);
  }
  spec->csv_fields = static_cast<int64_t>(names.size());
  return CheckColumnNames(spec->columns);
}

// Appends the blocks of a file. `names` is of the first file, and set by it.
absl::Status FindBlocks(int64_t file, const CsvOptions& options,
                        std::vector<std::string>* names, SourceSpec* spec) {
  const std::string& path = spec->files[static_cast<size_t>(file)].path;
  MR_ASSIGN_OR_RETURN(LineReader lines, LineReader::Open(path, 0));
  bool in_file = false;  // Past its first line that is not empty.
  bool in_block = false;
  SourceBlock block;
  int64_t records = 0;
  for (int64_t number = 1;; ++number) {
    MR_ASSIGN_OR_RETURN(const auto line, lines.Next());
    if (!line.has_value()) break;
    absl::string_view text = line->text;
    int64_t offset = line->offset_bytes;
    if (number == 1 && absl::ConsumePrefix(&text, kByteOrderMark)) {
      offset += static_cast<int64_t>(kByteOrderMark.size());
    }
    if (text.empty()) continue;
    if (!in_file) {
      in_file = true;
      MR_ASSIGN_OR_RETURN(auto own, FieldNames(path, text, options));
      if (names->empty()) {
        *names = std::move(own);
        MR_RETURN_IF_ERROR(ResolveColumns(options, *names, path, spec));
      } else if (options.header && own != *names) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, " has another header than ", spec->files[0].path,
                         ": ", absl::StrJoin(own, ", "), "; expected ",
                         absl::StrJoin(*names, ", ")));
      }
      if (options.header) continue;
    }
    if (in_block && offset - block.offset_bytes >= options.block_bytes) {
      spec->blocks.push_back(block);
      in_block = false;
    }
    if (!in_block) {
      block = {.records = 0,
               .file = file,
               .offset_bytes = offset,
               .first_record = records,
               .first_line = number};
      in_block = true;
    }
    ++block.records;
    ++records;
  }
  if (in_block) spec->blocks.push_back(block);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const BlockSource>> CsvSource::Create(
    SourceSpec spec) {
  size_t fields = 0;
  for (const CsvColumn& column : spec.csv) fields += column.fields.size();
  bool fits = fields == spec.csv_indices.size() &&
              spec.csv.size() == spec.columns.size();
  for (const int64_t index : spec.csv_indices) {
    fits = fits && index >= 0 && index < spec.csv_fields;
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        "a data set of CSV files whose columns and fields do not fit");
  }
  return std::shared_ptr<const BlockSource>(new CsvSource(std::move(spec)));
}

absl::StatusOr<std::unique_ptr<RecordReader>> CsvSource::Open(
    const SourceBlock& block) const {
  const SourceFile& file = FileOf(block);
  MR_RETURN_IF_ERROR(CheckUnchanged(file));
  MR_ASSIGN_OR_RETURN(LineReader lines,
                      LineReader::Open(file.path, block.offset_bytes));
  return std::make_unique<CsvReader>(shared_spec(), std::move(lines),
                                     block.first_line - 1);
}

absl::StatusOr<SourceSpec> SpecOfCsv(const std::vector<std::string>& paths,
                                     const CsvOptions& options) {
  if (options.block_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block_bytes is ", options.block_bytes, "; expected at least 1"));
  }
  if (options.delimiter == '"' || options.delimiter == '\n' ||
      options.delimiter == '\r') {
    return absl::InvalidArgumentError(
        "the delimiter of fields cannot be a quote or the end of a line");
  }
  SourceSpec spec;
  spec.kind = kCsvKind;
  spec.delimiter = options.delimiter;
  spec.header = options.header;
  MR_ASSIGN_OR_RETURN(spec.files, FindFiles(paths));
  std::vector<std::string> names;
  for (size_t i = 0; i < spec.files.size(); ++i) {
    MR_RETURN_IF_ERROR(
        FindBlocks(static_cast<int64_t>(i), options, &names, &spec));
  }
  if (spec.blocks.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no records in ", spec.files[0].path,
                     spec.files.size() > 1 ? " and the other files" : "",
                     options.header ? ": nothing but headers" : ""));
  }
  return spec;
}

absl::Status SplitCsvLine(absl::string_view line, char delimiter,
                          std::vector<std::string>* fields) {
  size_t count = 0;
  size_t i = 0;
  while (true) {
    if (count == fields->size()) fields->emplace_back();
    std::string& field = (*fields)[count++];
    field.clear();
    if (i < line.size() && line[i] == '"') {
      ++i;
      while (true) {
        const size_t quote = line.find('"', i);
        if (quote == absl::string_view::npos) {
          return absl::InvalidArgumentError(
              absl::StrCat("field ", count,
                           " begins with a quote that is not closed on "
                           "the same line"));
        }
        field.append(line.data() + i, quote - i);
        i = quote + 1;
        if (i == line.size() || line[i] != '"') break;
        field.push_back('"');
        ++i;
      }
    }
    const size_t end = std::min(line.find(delimiter, i), line.size());
    field.append(line.data() + i, end - i);
    if (end == line.size()) break;
    i = end + 1;
  }
  fields->resize(count);
  return absl::OkStatus();
}

}  // namespace miniray::train
