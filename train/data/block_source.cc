#include "train/data/block_source.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "train/data/csv_source.h"
#include "train/data/file_source.h"
#include "train/data/memory_source.h"

namespace miniray::train {
namespace {

namespace fs = std::filesystem;

absl::Status SystemError(const std::error_code& error,
                         const std::string& path) {
  return ErrnoStatus(error.value(), path);
}

absl::StatusOr<SourceFile> Stat(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) return SystemError(error, path);
  return SourceFile{.path = path, .bytes = static_cast<int64_t>(bytes)};
}

}  // namespace

// Bytes from elsewhere may say anything.
absl::Status CheckSpec(const SourceSpec& spec) {
  MR_RETURN_IF_ERROR(CheckColumnNames(spec.columns));
  int64_t size = 0;
  for (const SourceBlock& block : spec.blocks) {
    if (block.records < 1 || block.records > INT64_MAX - size ||
        block.offset_bytes < 0 || block.first_record < 0) {
      return absl::InvalidArgumentError("a data set with an impossible block");
    }
    if (spec.kind != kMemoryKind &&
        (block.file < 0 ||
         block.file >= static_cast<int64_t>(spec.files.size()))) {
      return absl::InvalidArgumentError(
          "a data set with a block of a file that it has not");
    }
    size += block.records;
  }
  if (size == 0) {
    return absl::InvalidArgumentError(
        "the data set has no records: none of its files holds any");
  }
  return absl::OkStatus();
}

BlockSource::BlockSource(SourceSpec spec)
    : spec_(std::make_shared<const SourceSpec>(std::move(spec))),
      columns_(
          std::make_shared<const std::vector<std::string>>(spec_->columns)) {
  for (const SourceBlock& block : spec_->blocks) size_ += block.records;
}

std::string BlockSource::Describe(const SourceBlock& block, int64_t i) const {
  const int64_t record = block.first_record + i;
  return spec_->files.empty()
             ? absl::StrCat("row ", record)
             : absl::StrCat(FileOf(block).path, ", record ", record);
}

absl::StatusOr<std::shared_ptr<const BlockSource>> MakeSource(SourceSpec spec) {
  MR_RETURN_IF_ERROR(CheckSpec(spec));
  if (spec.kind == kMemoryKind) return MemorySource::Create(std::move(spec));
  if (spec.kind == kCsvKind) return CsvSource::Create(std::move(spec));
  if (spec.kind == kFilesKind) {
    MR_ASSIGN_OR_RETURN(RecordFormat format, FindRecordFormat(spec.format));
    return std::shared_ptr<const BlockSource>(
        std::make_shared<FileSource>(std::move(spec), std::move(format)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a data set of unknown kind \"", spec.kind, "\""));
}

absl::StatusOr<std::vector<SourceFile>> FindFiles(
    const std::vector<std::string>& paths) {
  if (paths.empty()) {
    return absl::InvalidArgumentError("a data set of no files: name some");
  }
  std::vector<SourceFile> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      MR_ASSIGN_OR_RETURN(SourceFile file, Stat(path));
      files.push_back(std::move(file));
      continue;
    }
    std::vector<std::string> names;
    fs::directory_iterator entry(path, error);
    for (; !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      std::error_code ignored;
      if (name[0] != '.' && entry->is_regular_file(ignored)) {
        names.push_back(entry->path().string());
      }
    }
    if (error) return SystemError(error, path);
    if (names.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the folder ", path, " holds no files"));
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      MR_ASSIGN_OR_RETURN(SourceFile file, Stat(name));
      files.push_back(std::move(file));
    }
  }
  return files;
}

absl::Status CheckUnchanged(const SourceFile& file) {
  MR_ASSIGN_OR_RETURN(const SourceFile now, Stat(file.path));
  if (now.bytes != file.bytes) {
    return absl::DataLossError(absl::StrCat(
        file.path, " has ", now.bytes, " bytes, and had ", file.bytes,
        " when the data set was made: make the data set anew, and leave its "
        "files as they are while it is used"));
  }
  return absl::OkStatus();
}

absl::Status CheckColumnNames(absl::Span<const std::string> names) {
  if (names.empty()) {
    return absl::InvalidArgumentError(
        "a data set needs the names of its columns; got none");
  }
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two columns are called \"", name, "\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace miniray::train
