#include "ml/data/cifar10_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ml/data/byte_source.h"
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

// Returns the folder that holds the split's files.
absl::StatusOr<fs::path> FindFolder(const std::string& dir, Split split) {
  const std::vector<std::string> files = SplitFiles(split);
  const fs::path outer(dir);
  for (const fs::path& folder : {outer, outer / kInnerFolder}) {
    for (const std::string& file : files) {
      if (Exists(folder / file)) return folder;
    }
  }
  std::string hint = "unpack cifar-10-binary.tar.gz, the binary version, there";
  if (Exists(outer / "cifar-10-binary.tar.gz")) {
    hint = "unpack the archive there: tar -xzf cifar-10-binary.tar.gz";
  } else if (Exists(outer / "data_batch_1") ||
             Exists(outer / "cifar-10-batches-py") ||
             Exists(outer / "cifar-10-python.tar.gz")) {
    hint = "found is the Python version; " + hint;
  }
  return absl::NotFoundError(absl::StrCat(
      Exists(outer) ? "" : "no such folder: ", dir, ": expected ",
      absl::StrJoin(files, ", "), " there or in ", kInnerFolder, "; ", hint));
}

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
  const int64_t bytes = file.source->max_remaining();
  file.records = bytes / kRecordBytes;
  if (bytes == 0 || bytes % kRecordBytes != 0) {
    return file.source->ErrorAt(
        file.records * kRecordBytes,
        absl::StrCat("truncated, or not CIFAR-10: ", bytes % kRecordBytes,
                     " bytes are left of the file's ", bytes,
                     "; expected whole records of ", kRecordBytes, " bytes"));
  }
  return file;
}

// Reads records [begin, end) of `file`.
absl::Status ReadRecords(BatchFile& file, int64_t begin, int64_t end,
                         uint8_t* pixels, int64_t* labels) {
  ByteSource& source = *file.source;
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
            absl::StrCat("label ", record[0], " of record ", begin + i,
                         "; expected 0 to ", kNumClasses - 1));
      }
      *labels++ = record[0];
      std::memcpy(pixels, record + 1, kPixelBytes);
      pixels += kPixelBytes;
    }
    begin += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReadClassNames(
    const fs::path& folder) {
  const fs::path path = folder / kMetaFile;
  if (!Exists(path)) {
    return std::vector<std::string>{"airplane", "automobile", "bird", "cat",
                                    "deer",     "dog",        "frog", "horse",
                                    "ship",     "truck"};
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source,
                      ByteSource::Open(path.string()));
  const int64_t size = source->max_remaining();
  if (source->compressed() || size > kMaxMetaBytes) {
    return source->ErrorAt(
        0, absl::StrCat("not a list of class names; expected ", kNumClasses,
                        " lines of text"));
  }
  std::string text(size, '\0');
  MR_RETURN_IF_ERROR(source->Read(text.data(), size, "class names"));
  std::vector<std::string> names;
  // The official file ends in an empty line.
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty()) names.emplace_back(line);
  }
  if (names.size() != kNumClasses) {
    return source->ErrorAt(
        size,
        absl::StrCat("the data end after ", names.size(),
                     " class names; expected ", kNumClasses, ", one a line"));
  }
  return names;
}

}  // namespace

absl::StatusOr<ImageDataset> ReadCifar10Binary(
    const std::string& dir, Split split, const ShardSelection& selection) {
  MR_ASSIGN_OR_RETURN(const fs::path folder, FindFolder(dir, split));
  ImageDataset dataset;
  MR_ASSIGN_OR_RETURN(dataset.class_names, ReadClassNames(folder));

  std::vector<BatchFile> files;
  int64_t total = 0;
  for (const std::string& name : SplitFiles(split)) {
    MR_ASSIGN_OR_RETURN(BatchFile file, OpenBatch(folder / name));
    total += file.records;
    files.push_back(std::move(file));
  }
  MR_ASSIGN_OR_RETURN(const ShardRange range, SelectRange(total, selection));
  MR_ASSIGN_OR_RETURN(
      at::Tensor pixels,
      AllocateBytes(range.size() * kPixelBytes, "CIFAR-10 images"));
  dataset.images = pixels.view({range.size(), kChannels, kSide, kSide});
  dataset.labels = at::empty({range.size()}, at::kLong);

  int64_t first = 0;  // Index in the split of the file's first record.
  for (BatchFile& file : files) {
    const int64_t begin = std::max(range.begin, first);
    const int64_t end = std::min(range.end, first + file.records);
    if (begin < end) {
      MR_RETURN_IF_ERROR(ReadRecords(
          file, begin - first, end - first,
          pixels.data_ptr<uint8_t>() + (begin - range.begin) * kPixelBytes,
          dataset.labels.data_ptr<int64_t>() + (begin - range.begin)));
    }
    first += file.records;
  }
  return dataset;
}

}  // namespace miniray::ml
