#include "ml/data/cifar10_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "ml/data/byte_source.h"
#include "ml/data/tar_reader.h"
#include "ml/data/tensor_allocation.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNumClasses = 10;
constexpr int64_t kChannels = 3;
constexpr int64_t kSide = 32;
constexpr int64_t kPixelBytes = kChannels * kSide * kSide;
constexpr int64_t kRecordBytes = 1 + kPixelBytes;
constexpr int64_t kRecordsPerRead = 256;
constexpr int64_t kMaxMetaBytes = 64 * 1024;
constexpr char kInnerFolder[] = "cifar-10-batches-bin";
constexpr char kMetaFile[] = "batches.meta.txt";
constexpr char kArchive[] = "cifar-10-binary.tar.gz";
constexpr char kPythonFolder[] = "cifar-10-batches-py";

std::vector<std::string> SplitFiles(Split split) {
  if (split == Split::kTest) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
          "data_batch_4.bin", "data_batch_5.bin"};
}

// Unreadable counts as absent: opening the file then tells why.
bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Returns the folder that holds the split's files, or the archive in its place.
absl::StatusOr<fs::path> FindFiles(const std::string& dir, Split split) {
  const std::vector<std::string> files = SplitFiles(split);
  const fs::path outer(dir);
  std::error_code ignored;
  if (fs::is_regular_file(outer, ignored)) return outer;
  for (const fs::path& folder : {outer, outer / kInnerFolder}) {
    for (const std::string& file : files) {
      if (Exists(folder / file)) return folder;
    }
  }
  if (Exists(outer / kArchive)) return outer / kArchive;
  std::string hint = absl::StrCat("put ", kArchive,
                                  ", the binary version, there, or unpack it");
  if (Exists(outer / "data_batch_1") || Exists(outer / kPythonFolder) ||
      Exists(outer / "cifar-10-python.tar.gz")) {
    hint = "found is the Python version; " + hint;
  }
  return absl::NotFoundError(absl::StrCat(
      Exists(outer) ? "" : "no such folder: ", dir, ": expected ",
      absl::StrJoin(files, ", "), " there or in ", kInnerFolder, "; ", hint));
}

// How many records so many bytes at the source's offset are.
absl::StatusOr<int64_t> CountRecords(const ByteSource& source, int64_t bytes,
                                     absl::string_view of_what) {
  const int64_t records = bytes / kRecordBytes;
  if (bytes == 0 || bytes % kRecordBytes != 0) {
    return source.ErrorAt(
        source.offset() + records * kRecordBytes,
        absl::StrCat("truncated, or not CIFAR-10: ", bytes % kRecordBytes,
                     " bytes are left of ", of_what, " ", bytes,
                     "; expected whole records of ", kRecordBytes, " bytes"));
  }
  return records;
}

// Where a part of a split goes.
struct Destination {
  uint8_t* pixels;
  int64_t* labels;
};

// Reads records [begin, end) of what begins at the source's offset. `where`
// ends the records' names in messages.
absl::Status ReadRecords(ByteSource& source, int64_t begin, int64_t end,
                         absl::string_view where, Destination to) {
  MR_RETURN_IF_ERROR(source.Skip(begin * kRecordBytes, "CIFAR-10 records"));
  std::vector<uint8_t> buffer(std::min(end - begin, kRecordsPerRead) *
                              kRecordBytes);
  while (begin < end) {
    const int64_t count = std::min(end - begin, kRecordsPerRead);
    const int64_t at = source.offset();
    MR_RETURN_IF_ERROR(
        source.Read(buffer.data(), count * kRecordBytes, "CIFAR-10 records"));
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* record = buffer.data() + i * kRecordBytes;
      if (record[0] >= kNumClasses) {
        return source.ErrorAt(
            at + i * kRecordBytes,
            absl::StrCat("label ", record[0], " of record ", begin + i, where,
                         "; expected 0 to ", kNumClasses - 1));
      }
      *to.labels++ = record[0];
      std::memcpy(to.pixels, record + 1, kPixelBytes);
      to.pixels += kPixelBytes;
    }
    begin += count;
  }
  return absl::OkStatus();
}

std::vector<std::string> OfficialClassNames() {
  return {"airplane", "automobile", "bird",  "cat",  "deer",
          "dog",      "frog",       "horse", "ship", "truck"};
}

// Reads a list of class names, `size` bytes at the source's offset.
absl::StatusOr<std::vector<std::string>> ReadClassNames(ByteSource& source,
                                                        int64_t size) {
  if (size > kMaxMetaBytes) {
    return source.ErrorAt(source.offset(),
                          absl::StrCat("not a list of class names; expected ",
                                       kNumClasses, " lines of text"));
  }
  std::string text(static_cast<size_t>(size), '\0');
  MR_RETURN_IF_ERROR(source.Read(text.data(), size, "class names"));
  std::vector<std::string> names;
  // The official file ends in an empty line.
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty()) names.emplace_back(line);
  }
  if (names.size() != kNumClasses) {
    return source.ErrorAt(
        source.offset(),
        absl::StrCat("the data end after ", names.size(),
                     " class names; expected ", kNumClasses, ", one a line"));
  }
  return names;
}

// Makes room for a part of a split.
absl::Status Allocate(int64_t records, ImageDataset* dataset) {
  MR_ASSIGN_OR_RETURN(const at::Tensor pixels,
                      AllocateBytes(records * kPixelBytes, "CIFAR-10 images"));
  dataset->images = pixels.view({records, kChannels, kSide, kSide});
  dataset->labels = at::empty({records}, at::kLong);
  return absl::OkStatus();
}

// Which records of a file are selected, and where they go.
struct Overlap {
  int64_t begin = 0;  // In the file.
  int64_t end = 0;    // Not above begin: none.
  Destination to;
};

// first: index in the split of the file's first record.
Overlap FindOverlap(const ShardRange& range, int64_t first, int64_t records,
                    const ImageDataset& dataset) {
  const int64_t begin = std::max(range.begin, first);
  const int64_t end = std::min(range.end, first + records);
  if (begin >= end) return {};
  const int64_t place = begin - range.begin;
  return {
      .begin = begin - first,
      .end = end - first,
      .to = {.pixels = dataset.images.data_ptr<uint8_t>() + place * kPixelBytes,
             .labels = dataset.labels.data_ptr<int64_t>() + place}};
}

// ---- Unpacked files.

struct BatchFile {
  std::unique_ptr<ByteSource> source;
  int64_t records = 0;
};

absl::StatusOr<BatchFile> OpenBatch(const fs::path& path) {
  BatchFile file;
  MR_ASSIGN_OR_RETURN(file.source, ByteSource::Open(path.string()));
  // 0x1f, gzip's first byte, is no label: the file cannot be meant as is.
  if (file.source->compressed()) {
    return absl::DataLossError(absl::StrCat(
        path.string(), ": at byte 0: gzip data; expected records of ",
        kRecordBytes, " bytes; decompress it with gunzip"));
  }
  MR_ASSIGN_OR_RETURN(
      file.records,
      CountRecords(*file.source, file.source->max_remaining(), "the file's"));
  return file;
}

absl::StatusOr<std::vector<BatchFile>> OpenBatches(const fs::path& folder,
                                                   Split split) {
  std::vector<BatchFile> files;
  for (const std::string& name : SplitFiles(split)) {
    MR_ASSIGN_OR_RETURN(BatchFile file, OpenBatch(folder / name));
    files.push_back(std::move(file));
  }
  return files;
}

int64_t TotalOf(const std::vector<BatchFile>& files) {
  int64_t total = 0;
  for (const BatchFile& file : files) total += file.records;
  return total;
}

absl::StatusOr<std::vector<std::string>> ReadMetaFile(const fs::path& folder) {
  const fs::path path = folder / kMetaFile;
  if (!Exists(path)) return OfficialClassNames();
  MR_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source,
                      ByteSource::Open(path.string()));
  // What gzip data decompress to is not known; too much, in any case.
  return ReadClassNames(*source, source->compressed()
                                     ? kMaxMetaBytes + 1
                                     : source->max_remaining());
}

absl::StatusOr<ImageDataset> ReadFolder(const fs::path& folder, Split split,
                                        const ShardSelection& selection) {
  ImageDataset dataset;
  MR_ASSIGN_OR_RETURN(dataset.class_names, ReadMetaFile(folder));
  MR_ASSIGN_OR_RETURN(std::vector<BatchFile> files, OpenBatches(folder, split));
  MR_ASSIGN_OR_RETURN(const ShardRange range,
                      SelectRange(TotalOf(files), selection));
  MR_RETURN_IF_ERROR(Allocate(range.size(), &dataset));
  int64_t first = 0;
  for (BatchFile& file : files) {
    const Overlap part = FindOverlap(range, first, file.records, dataset);
    if (part.begin < part.end) {
      MR_RETURN_IF_ERROR(
          ReadRecords(*file.source, part.begin, part.end, "", part.to));
    }
    first += file.records;
  }
  return dataset;
}

// ---- The archive.

// Returns the name of one of CIFAR-10's files without its folder; empty for
// anything else.
absl::string_view FileName(absl::string_view member) {
  absl::ConsumePrefix(&member, "./");
  if (absl::ConsumePrefix(&member, kInnerFolder) &&
      !absl::ConsumePrefix(&member, "/")) {
    return "";
  }
  return absl::StrContains(member, '/') ? "" : member;
}

// What an archive has of a split.
struct ArchiveIndex {
  std::map<std::string, int64_t> records;  // Of each of the split's files.
  std::vector<std::string> class_names = OfficialClassNames();
};

// Reads all of an archive, whose files may be in any order.
absl::StatusOr<ArchiveIndex> IndexArchive(const std::string& path,
                                          Split split) {
  const std::vector<std::string> files = SplitFiles(split);
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                      ByteSource::Open(path));
  TarReader reader(source.get());
  ArchiveIndex index;
  bool is_python = false;
  while (true) {
    MR_ASSIGN_OR_RETURN(const std::optional<TarMember> member, reader.Next());
    if (!member.has_value()) break;
    is_python = is_python || absl::StrContains(member->name, kPythonFolder);
    if (!member->is_file) continue;
    const std::string name(FileName(member->name));
    if (name == kMetaFile) {
      MR_ASSIGN_OR_RETURN(index.class_names,
                          ReadClassNames(*source, member->size));
    }
    if (std::find(files.begin(), files.end(), name) == files.end()) continue;
    const int64_t at = source->offset();
    MR_ASSIGN_OR_RETURN(
        const int64_t records,
        CountRecords(*source, member->size, absl::StrCat(name, "'s")));
    if (!index.records.emplace(name, records).second) {
      return source->ErrorAt(at, absl::StrCat("a second ", name));
    }
  }
  for (const std::string& name : files) {
    if (index.records.contains(name)) continue;
    return absl::NotFoundError(absl::StrCat(
        path, ": the archive has no ", name, "; expected that of ", kArchive,
        is_python ? "; this is the Python version" : ""));
  }
  return index;
}

// Two passes: where a shard begins is known when all files' sizes are, and a
// worker does not hold more than its part.
absl::StatusOr<ImageDataset> ReadArchive(const std::string& path, Split split,
                                         const ShardSelection& selection) {
  MR_ASSIGN_OR_RETURN(ArchiveIndex index, IndexArchive(path, split));
  std::map<std::string, int64_t> firsts;  // As FindOverlap's.
  int64_t total = 0;
  for (const std::string& name : SplitFiles(split)) {
    firsts.emplace(name, total);
    total += index.records.at(name);
  }
  MR_ASSIGN_OR_RETURN(const ShardRange range, SelectRange(total, selection));
  ImageDataset dataset;
  dataset.class_names = std::move(index.class_names);
  MR_RETURN_IF_ERROR(Allocate(range.size(), &dataset));

  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                      ByteSource::Open(path));
  TarReader reader(source.get());
  int64_t missing = range.size();
  while (missing > 0) {
    MR_ASSIGN_OR_RETURN(const std::optional<TarMember> member, reader.Next());
    if (!member.has_value()) break;
    const std::string name(FileName(member->name));
    const auto first = firsts.find(name);
    if (!member->is_file || first == firsts.end()) continue;
    const int64_t records = index.records.at(name);
    if (member->size != records * kRecordBytes) break;
    const Overlap part = FindOverlap(range, first->second, records, dataset);
    if (part.begin >= part.end) continue;
    MR_RETURN_IF_ERROR(ReadRecords(*source, part.begin, part.end,
                                   absl::StrCat(" of ", name), part.to));
    missing -= part.end - part.begin;
  }
  if (missing > 0) {
    return source->ErrorAt(source->offset(),
                           "the archive has changed while it was read");
  }
  return dataset;
}

}  // namespace

absl::StatusOr<ImageDataset> ReadCifar10Binary(
    const std::string& dir, Split split, const ShardSelection& selection) {
  MR_ASSIGN_OR_RETURN(const fs::path files, FindFiles(dir, split));
  std::error_code ignored;
  if (fs::is_directory(files, ignored)) {
    return ReadFolder(files, split, selection);
  }
  return ReadArchive(files.string(), split, selection);
}

absl::StatusOr<int64_t> CountUnpackedCifar10(const std::string& dir,
                                             Split split) {
  MR_ASSIGN_OR_RETURN(const fs::path path, FindFiles(dir, split));
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return 0;
  MR_ASSIGN_OR_RETURN(const std::vector<BatchFile> files,
                      OpenBatches(path, split));
  return TotalOf(files);
}

}  // namespace miniray::ml
