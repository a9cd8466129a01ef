#include "ml/data/csv_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

// Takes one line, without its end, off the text.
absl::string_view TakeLine(absl::string_view* text) {
  const size_t end = text->find('\n');
  absl::string_view line = text->substr(0, end);
  text->remove_prefix(end == absl::string_view::npos ? text->size() : end + 1);
  absl::ConsumeSuffix(&line, "\r");
  return line;
}

// Takes a field in quotes off the line, without them.
bool TakeQuoted(absl::string_view* line, std::string* field) {
  line->remove_prefix(1);
  while (true) {
    const size_t quote = line->find('"');
    if (quote == absl::string_view::npos) return false;
    absl::StrAppend(field, line->substr(0, quote));
    line->remove_prefix(quote + 1);
    if (!absl::ConsumePrefix(line, "\"")) break;
    *field += '"';  // Two of them stand for one.
  }
  *line = absl::StripLeadingAsciiWhitespace(*line);
  return line->empty() || line->front() == ',';
}

// Cuts a line into fields, without quotes and the blanks around them. Returns
// false if a quote has no end or is not all of its field.
bool Split(absl::string_view line, std::vector<std::string>* fields) {
  fields->clear();
  while (true) {
    line = absl::StripLeadingAsciiWhitespace(line);
    std::string field;
    if (absl::StartsWith(line, "\"")) {
      if (!TakeQuoted(&line, &field)) return false;
    } else {
      const absl::string_view text = line.substr(0, line.find(','));
      if (absl::StrContains(text, '"')) return false;
      field = std::string(absl::StripTrailingAsciiWhitespace(text));
      line.remove_prefix(text.size());
    }
    fields->push_back(std::move(field));
    if (!absl::ConsumePrefix(&line, ",")) return true;
  }
}

// Where something is wrong.
struct Place {
  const std::string& path;
  int64_t line = 0;  // From 1.

  absl::Status Error(absl::string_view problem) const {
    return absl::DataLossError(
        absl::StrCat(path, ": line ", line, ": ", problem));
  }
};

absl::Status CheckNames(const std::vector<std::string>& names,
                        const Place& place) {
  std::set<absl::string_view> seen;
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->empty()) {
      return place.Error(absl::StrCat("column ", name - names.begin() + 1,
                                      " has no name; the first line has the "
                                      "names of the columns"));
    }
    if (!seen.insert(*name).second) {
      return place.Error(absl::StrCat("two columns are called '", *name, "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status AddRow(const std::vector<std::string>& fields, const Place& place,
                    NumberTable* table) {
  if (fields.size() != table->columns.size()) {
    return place.Error(absl::StrCat(fields.size(),
                                    " fields; the first line has ",
                                    table->columns.size(), " names"));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    double value = 0;
    if (!absl::SimpleAtod(fields[i], &value) || !std::isfinite(value)) {
      return place.Error(absl::StrCat(
          "column '", table->columns[i], "': ",
          fields[i].empty() ? "nothing" : absl::StrCat("'", fields[i], "'"),
          "; expected a finite number"));
    }
    table->values.push_back(value);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NumberTable> ReadCsv(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no regular file"));
  }
  MR_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  absl::string_view text = bytes;
  absl::ConsumePrefix(&text, kByteOrderMark);

  NumberTable table;
  std::vector<std::string> fields;
  Place place = {.path = path};
  while (!text.empty()) {
    const absl::string_view line = TakeLine(&text);
    ++place.line;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    if (!Split(line, &fields)) {
      return place.Error("a quote has no end, or stands within a field");
    }
    if (table.columns.empty()) {
      MR_RETURN_IF_ERROR(CheckNames(fields, place));
      table.columns = fields;
      // Of the file's own size, not of what names and lines promise: each
      // number has a digit and something between it and the next.
      table.values.reserve(std::min(
          fields.size() * static_cast<size_t>(
                              1 + std::count(text.begin(), text.end(), '\n')),
          text.size() / 2 + 1));
    } else {
      MR_RETURN_IF_ERROR(AddRow(fields, place, &table));
    }
  }
  if (table.values.empty()) {
    return absl::DataLossError(absl::StrCat(
        path, ": ",
        table.columns.empty() ? "it is empty" : "no line follows the names"));
  }
  return table;
}

absl::Status WriteCsv(const NumberTable& table, const std::string& path) {
  if (table.columns.empty() || table.values.empty() ||
      table.values.size() % table.columns.size() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(table.values.size(), " numbers are no rows of ",
                     table.columns.size(), " columns"));
  }
  std::string text;
  for (const std::string& name : table.columns) {
    if (name.find_first_of("\r\n") != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("the column '", name, "' has a line end in its name"));
    }
    absl::StrAppend(&text, text.empty() ? "" : ",", "\"",
                    absl::StrReplaceAll(name, {{"\"", "\"\""}}), "\"");
  }
  text += '\n';
  for (size_t i = 0; i < table.values.size(); ++i) {
    if (!std::isfinite(table.values[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("the column '", table.columns[i % table.columns.size()],
                       "' has ", table.values[i]));
    }
    const bool last = (i + 1) % table.columns.size() == 0;
    absl::StrAppendFormat(&text, "%.17g%c", table.values[i], last ? '\n' : ',');
  }
  return WriteOutput(path, text);
}

absl::StatusOr<int64_t> ColumnIndex(const NumberTable& table,
                                    absl::string_view name) {
  const auto it = std::find(table.columns.begin(), table.columns.end(), name);
  if (it != table.columns.end()) return it - table.columns.begin();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no column '", name, "'; there are ",
                   absl::StrJoin(table.columns, ", ")));
}

}  // namespace miniray::ml
