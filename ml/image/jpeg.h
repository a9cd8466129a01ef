// JPEG files to tensors.

#ifndef MINIRAY_ML_IMAGE_JPEG_H_
#define MINIRAY_ML_IMAGE_JPEG_H_

#include <cstdint>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"

namespace miniray::ml {

// Returns uint8 [C, H, W]: C = 1 for a grey JPEG, 3 (RGB) for any other. What a
// camera says about its own orientation does not count. Safe on hostile files:
// the size is checked before memory is taken.
//
// at_least: of a large picture, that will be made smaller anyway, the decoder
//   may leave out detail, in eighths of its size, as long as height and width
//   are at least this; that is several times as fast. 0: all of it.
// Errors: the system's, with the path; FailedPrecondition if it is not a
//   regular file; DataLoss for a damaged file (also one that ends early) or one
//   that is no JPEG; ResourceExhausted for more than kMaxJpegFileBytes or
//   kMaxJpegPixels.
absl::StatusOr<at::Tensor> ReadJpeg(const std::string& path,
                                    int64_t at_least = 0);

inline constexpr int64_t kMaxJpegPixels = int64_t{1} << 26;
inline constexpr int64_t kMaxJpegFileBytes = int64_t{256} << 20;

}  // namespace miniray::ml

#endif  // MINIRAY_ML_IMAGE_JPEG_H_
