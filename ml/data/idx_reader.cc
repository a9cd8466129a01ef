#include "ml/data/idx_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ml/data/byte_source.h"
#include "ml/data/tensor_allocation.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

constexpr int64_t kMagicBytes = 4;
constexpr uint8_t kUnsignedByte = 0x08;
// Memory taken at once for gzip contents, whose size only their end proves.
constexpr int64_t kFirstAllocation = int64_t{64} << 20;

// Reads the magic number and `dims` sizes.
absl::StatusOr<std::vector<int64_t>> ReadHeader(ByteSource& source, int dims) {
  uint8_t magic[kMagicBytes];
  MR_RETURN_IF_ERROR(source.Read(magic, kMagicBytes, "an IDX magic number"));
  if (magic[0] != 0 || magic[1] != 0) {
    return source.ErrorAt(
        0, absl::StrFormat("magic number 0x%02x%02x%02x%02x; expected "
                           "0x0000%02x%02x (IDX, unsigned bytes, %d "
                           "dimension%s)",
                           magic[0], magic[1], magic[2], magic[3],
                           kUnsignedByte, dims, dims, dims == 1 ? "" : "s"));
  }
  if (magic[2] != kUnsignedByte) {
    return source.ErrorAt(
        2, absl::StrFormat("IDX element type 0x%02x; expected 0x%02x, unsigned "
                           "bytes",
                           magic[2], kUnsignedByte));
  }
  if (magic[3] != dims) {
    return source.ErrorAt(
        3,
        absl::StrFormat("an IDX array of dimension %d; expected %s", magic[3],
                        dims == 1 ? "1, as labels have"
                                  : "3, as images have (count, height, "
                                    "width)"));
  }
  std::vector<int64_t> sizes;
  for (int d = 0; d < dims; ++d) {
    uint8_t bytes[4];
    const int64_t at = source.offset();
    MR_RETURN_IF_ERROR(source.Read(bytes, sizeof(bytes), "an IDX array size"));
    const uint32_t size = (uint32_t{bytes[0]} << 24) |
                          (uint32_t{bytes[1]} << 16) |
                          (uint32_t{bytes[2]} << 8) | uint32_t{bytes[3]};
    if (size == 0) {
      return source.ErrorAt(at, absl::StrCat("size 0 for dimension ", d,
                                             "; expected at least 1"));
    }
    sizes.push_back(size);
  }
  return sizes;
}

// Errors unless the rest of the file can hold an array of `sizes`.
absl::Status CheckFits(const ByteSource& source,
                       const std::vector<int64_t>& sizes) {
  const int64_t room = source.max_remaining();
  int64_t need = 1;
  for (int64_t size : sizes) {
    if (size > room / need) {  // need * size could overflow.
      std::string array = absl::StrCat(sizes[0]);
      for (size_t d = 1; d < sizes.size(); ++d) {
        absl::StrAppend(&array, " x ", sizes[d]);
      }
      return source.ErrorAt(
          kMagicBytes,
          absl::StrCat("truncated, or a damaged header: it announces ", array,
                       " bytes, but the file has ",
                       source.compressed() ? "room for at most " : "only ",
                       room, " after byte ", source.offset()));
    }
    need *= size;
  }
  return absl::OkStatus();
}

// Reads `size` > 0 bytes into a tensor uint8 [size].
absl::StatusOr<at::Tensor> ReadTensor(ByteSource& source, int64_t size,
                                      absl::string_view what) {
  // For a plain file CheckFits has compared `size` with the file's own.
  int64_t capacity =
      source.compressed() ? std::min(size, kFirstAllocation) : size;
  MR_ASSIGN_OR_RETURN(at::Tensor data, AllocateBytes(capacity, what));
  MR_RETURN_IF_ERROR(source.Read(data.data_ptr<uint8_t>(), capacity, what));
  while (capacity < size) {
    const int64_t grown = capacity <= size / 2 ? capacity * 2 : size;
    MR_ASSIGN_OR_RETURN(at::Tensor larger, AllocateBytes(grown, what));
    std::memcpy(larger.data_ptr<uint8_t>(), data.data_ptr<uint8_t>(), capacity);
    data = std::move(larger);
    MR_RETURN_IF_ERROR(source.Read(data.data_ptr<uint8_t>() + capacity,
                                   grown - capacity, what));
    capacity = grown;
  }
  return data;
}

struct LabelFile {
  std::string path;
  int64_t count;
};

absl::StatusOr<at::Tensor> ReadImages(const std::string& path,
                                      const ShardSelection& selection,
                                      const std::optional<LabelFile>& labels) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source,
                      ByteSource::Open(path));
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReadHeader(*source, 3));
  MR_RETURN_IF_ERROR(CheckFits(*source, sizes));
  const int64_t count = sizes[0];
  if (labels.has_value() && labels->count != count) {
    return source->ErrorAt(
        kMagicBytes,
        absl::StrCat(count, " images, but ", labels->path, " has ",
                     labels->count, " labels; expected one for each image"));
  }
  const int64_t image_bytes = sizes[1] * sizes[2];
  MR_ASSIGN_OR_RETURN(const ShardRange range, SelectRange(count, selection));
  MR_RETURN_IF_ERROR(source->Skip(range.begin * image_bytes, "images"));
  MR_ASSIGN_OR_RETURN(
      at::Tensor pixels,
      ReadTensor(*source, range.size() * image_bytes, "images"));
  MR_RETURN_IF_ERROR(source->Skip((count - range.end) * image_bytes, "images"));
  MR_RETURN_IF_ERROR(source->ExpectEnd(absl::StrCat(count, " images")));
  return pixels.view({range.size(), 1, sizes[1], sizes[2]});
}

}  // namespace

absl::StatusOr<at::Tensor> ReadIdxImages(const std::string& path,
                                         const ShardSelection& selection) {
  return ReadImages(path, selection, std::nullopt);
}

absl::StatusOr<at::Tensor> ReadIdxLabels(const std::string& path,
                                         int64_t num_classes) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source,
                      ByteSource::Open(path));
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReadHeader(*source, 1));
  MR_RETURN_IF_ERROR(CheckFits(*source, sizes));
  const int64_t count = sizes[0];
  const int64_t first = source->offset();
  MR_ASSIGN_OR_RETURN(const at::Tensor bytes,
                      ReadTensor(*source, count, "labels"));
  MR_RETURN_IF_ERROR(source->ExpectEnd(absl::StrCat(count, " labels")));
  const uint8_t* label = bytes.data_ptr<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    if (label[i] >= num_classes) {
      return source->ErrorAt(first + i,
                             absl::StrCat("label ", label[i], " of item ", i,
                                          "; expected 0 to ", num_classes - 1));
    }
  }
  return bytes.to(at::kLong);
}

absl::StatusOr<ImageDataset> ReadIdxDataset(
    const std::string& images_path, const std::string& labels_path,
    std::vector<std::string> class_names, const ShardSelection& selection) {
  MR_ASSIGN_OR_RETURN(
      const at::Tensor labels,
      ReadIdxLabels(labels_path, static_cast<int64_t>(class_names.size())));
  const int64_t count = labels.size(0);
  ImageDataset dataset;
  MR_ASSIGN_OR_RETURN(
      dataset.images,
      ReadImages(images_path, selection, LabelFile{labels_path, count}));
  MR_ASSIGN_OR_RETURN(const ShardRange range, SelectRange(count, selection));
  // A view would keep all labels alive.
  dataset.labels = labels.narrow(0, range.begin, range.size()).clone();
  dataset.class_names = std::move(class_names);
  return dataset;
}

}  // namespace miniray::ml
