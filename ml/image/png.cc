#include "ml/image/png.h"

#include <png.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ml/data/describe_tensor.h"
#include "ml/image/image_file.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// libpng's simplified interface reports errors as values; the classic one would
// longjmp over C++ destructors.
struct FreePngImage {
  void operator()(png_image* image) const { png_image_free(image); }
};
using PngImagePtr = std::unique_ptr<png_image, FreePngImage>;

absl::Status CheckImage(const at::Tensor& image) {
  if (!image.defined() || image.scalar_type() != at::kByte ||
      image.dim() != 3 || (image.size(0) != 1 && image.size(0) != 3) ||
      image.numel() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a PNG needs uint8 [C, H, W] with C = 1 or 3, not ",
                     DescribeTensor(image)));
  }
  if (image.size(1) > kMaxPngPixels / image.size(2)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an image of ", image.size(1), " x ", image.size(2),
        " pixels is too large for a PNG here; the limit is ", kMaxPngPixels));
  }
  return absl::OkStatus();
}

// Returns the file's bytes.
absl::StatusOr<std::string> Encode(const at::Tensor& image) {
  // libpng wants the channels last.
  const at::Tensor pixels = image.permute({1, 2, 0}).cpu().contiguous();
  png_image png = {};
  const PngImagePtr cleanup(&png);
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(image.size(1));
  png.width = static_cast<png_uint_32>(image.size(2));
  png.format = image.size(0) == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string bytes(size, '\0');
  if (!png_image_write_to_memory(&png, bytes.data(), &size,
                                 /*convert_to_8bit=*/0,
                                 pixels.data_ptr<uint8_t>(),
                                 /*row_stride=*/0, /*colormap=*/nullptr)) {
    return absl::InternalError(
        absl::StrCat("libpng could not encode: ", png.message));
  }
  bytes.resize(size);
  return bytes;
}

// REQUIRES: four bytes lie at `at`.
size_t Number(absl::string_view bytes, size_t at) {
  size_t value = 0;
  for (const char byte : bytes.substr(at, 4)) {
    value = value << 8 | static_cast<unsigned char>(byte);
  }
  return value;
}

// Returns the byte from which on a damaged file is no PNG: its first, that of a
// chunk that reaches beyond the file or has a wrong checksum, or that of the
// pixels, if no chunk has.
size_t DamageIn(absl::string_view bytes) {
  constexpr absl::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
  constexpr size_t kAround = 12;  // A chunk's length, type and checksum.
  if (!absl::StartsWith(bytes, kSignature)) return 0;
  size_t at = kSignature.size();
  size_t pixels = 0;
  while (bytes.size() - at >= kAround) {
    const size_t length = Number(bytes, at);
    if (length > bytes.size() - at - kAround) return at;
    const absl::string_view body = bytes.substr(at + 4, 4 + length);
    const uLong sum =
        crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
    if (sum != Number(bytes, at + 8 + length)) return at;
    if (pixels == 0 && absl::StartsWith(body, "IDAT")) pixels = at;
    at += kAround + length;
    if (absl::StartsWith(body, "IEND") && pixels > 0) return pixels;
  }
  return at;
}

absl::Status Damaged(const std::string& bytes, const png_image& png) {
  return absl::DataLossError(
      absl::StrCat("from byte ", DamageIn(bytes),
                   " on: damaged, or no PNG; libpng: ", png.message));
}

absl::StatusOr<at::Tensor> Decode(const std::string& bytes) {
  png_image png = {};
  const PngImagePtr cleanup(&png);
  png.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_memory(&png, bytes.data(), bytes.size())) {
    return Damaged(bytes, png);
  }
  const int64_t height = png.height;
  const int64_t width = png.width;
  if (height > kMaxPngPixels / width) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the header announces ", width, " x ", height,
                     " pixels; the limit is ", kMaxPngPixels));
  }
  png.format =
      png.format & PNG_FORMAT_FLAG_COLOR ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  const int64_t channels = PNG_IMAGE_SAMPLE_CHANNELS(png.format);
  const at::Tensor pixels = at::empty({height, width, channels}, at::kByte);
  const png_color black = {};
  if (!png_image_finish_read(&png, &black, pixels.data_ptr<uint8_t>(),
                             /*row_stride=*/0, /*colormap=*/nullptr)) {
    return Damaged(bytes, png);
  }
  return pixels.permute({2, 0, 1}).contiguous();
}

}  // namespace

absl::StatusOr<std::string> EncodePng(const at::Tensor& image) {
  MR_RETURN_IF_ERROR(CheckImage(image));
  return Encode(image);
}

absl::Status WritePng(const std::string& path, const at::Tensor& image) {
  absl::StatusOr<std::string> bytes = EncodePng(image);
  if (!bytes.ok()) return Annotate(bytes.status(), path);
  return WriteOutput(path, *bytes);
}

absl::StatusOr<at::Tensor> ReadPng(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string bytes,
                      ReadImageFile(path, kMaxPngFileBytes));
  absl::StatusOr<at::Tensor> image = Decode(bytes);
  if (!image.ok()) return Annotate(image.status(), path);
  return image;
}

}  // namespace miniray::ml
