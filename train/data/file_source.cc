#include "train/data/file_source.h"

#include <cstdint>
#include <exception>
#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

using Reader = std::unique_ptr<RecordReader>;

absl::StatusOr<Reader> OpenFile(const RecordFormat& format,
                                const std::string& path) {
  MR_ASSIGN_OR_RETURN(Reader reader, format.open(path));
  if (reader == nullptr) {
    return absl::InternalError("its format's open function returned no reader");
  }
  return reader;
}

absl::StatusOr<int64_t> Count(const RecordFormat& format,
                              const std::string& path) {
  int64_t count = 0;
  try {
    if (format.count != nullptr) {
      absl::StatusOr<int64_t> counted = format.count(path);
      if (counted.ok() && *counted < 0) {
        return absl::InternalError(
            absl::StrCat(path, ": its format counts ", *counted, " records"));
      }
      if (!counted.ok()) return Annotate(counted.status(), path);
      return counted;
    }
    absl::StatusOr<Reader> reader = OpenFile(format, path);
    if (!reader.ok()) return Annotate(reader.status(), path);
    while (true) {
      const absl::StatusOr<std::optional<Row>> row = (*reader)->Next();
      if (!row.ok()) {
        return Annotate(row.status(), absl::StrCat(path, ", record ", count));
      }
      if (!row->has_value()) return count;
      ++count;
    }
  } catch (const std::exception& e) {
    return absl::InternalError(
        absl::StrCat(path, ", record ", count, ": ", e.what()));
  }
}

}  // namespace

absl::StatusOr<Reader> FileSource::Open(const SourceBlock& block) const {
  MR_RETURN_IF_ERROR(CheckUnchanged(FileOf(block)));
  return OpenFile(format_, FileOf(block).path);
}

absl::StatusOr<SourceSpec> FileSource::Spec() const {
  if (spec().format.empty()) {
    return absl::FailedPreconditionError(
        "a data set whose record format has no name cannot be sent to another "
        "process; name the format with MINIRAY_RECORD_READER and give "
        "Dataset::FromFiles the name");
  }
  return spec();
}

absl::StatusOr<SourceSpec> SpecOfFiles(const std::vector<std::string>& paths,
                                       const std::string& format_name,
                                       const RecordFormat& format,
                                       std::vector<std::string> columns) {
  if (format.open == nullptr) {
    return absl::InvalidArgumentError(
        "the record format has no function that opens a file");
  }
  MR_RETURN_IF_ERROR(CheckColumnNames(columns));
  SourceSpec spec;
  spec.kind = kFilesKind;
  spec.format = format_name;
  spec.columns = std::move(columns);
  MR_ASSIGN_OR_RETURN(spec.files, FindFiles(paths));
  for (size_t i = 0; i < spec.files.size(); ++i) {
    MR_ASSIGN_OR_RETURN(const int64_t records,
                        Count(format, spec.files[i].path));
    if (records == 0) continue;
    spec.blocks.push_back(
        {.records = records, .file = static_cast<int64_t>(i)});
  }
  return spec;
}

}  // namespace miniray::train
