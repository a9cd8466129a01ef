// PNG files from and to tensors: 8-bit, grey or RGB.

#ifndef MINIRAY_ML_IMAGE_PNG_H_
#define MINIRAY_ML_IMAGE_PNG_H_

#include <cstdint>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace miniray::ml {

// Writes an image to `path`, through a temporary file beside it that is then
// renamed: a reader, or a full disk, never leaves half a picture at `path`.
//
// image: uint8 [C, H, W], C = 1 (grey) or 3 (RGB).
// Errors: InvalidArgument for another dtype or shape, or more than
//   kMaxPngPixels; the system's (NotFound for a missing folder,
//   ResourceExhausted for a full disk) with the path.
absl::Status WritePng(const std::string& path, const at::Tensor& image);

// Returns the bytes of such a file. Errors: InvalidArgument, as above.
absl::StatusOr<std::string> EncodePng(const at::Tensor& image);

// Returns uint8 [C, H, W]: C = 1 for a grey PNG, 3 for any other. 16-bit values
// are reduced to 8 bits, transparent pixels shown on black. Safe on hostile
// files: the size is checked before memory is taken.
//
// Errors: the system's, with the path; FailedPrecondition if it is not a
//   regular file; DataLoss for a damaged file or one that is no PNG;
//   ResourceExhausted for more than kMaxPngFileBytes or kMaxPngPixels.
absl::StatusOr<at::Tensor> ReadPng(const std::string& path);

// 2^26 pixels, 8192 x 8192, are 192 MiB as RGB.
inline constexpr int64_t kMaxPngPixels = int64_t{1} << 26;
inline constexpr int64_t kMaxPngFileBytes = int64_t{256} << 20;

}  // namespace miniray::ml

#endif  // MINIRAY_ML_IMAGE_PNG_H_
