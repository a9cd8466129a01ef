// Pictures of one size from pictures of any.

#ifndef MINIRAY_ML_IMAGE_RESIZE_H_
#define MINIRAY_ML_IMAGE_RESIZE_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace miniray::ml {

// Returns uint8 [C, size, size]: the image scaled, without distortion, until
// its shorter side has `size` pixels, and the middle of that. Scaling is linear
// interpolation over all pixels that a new one covers (antialiased), so that
// what becomes smaller does not flicker.
//
// image: uint8 [C, H, W] on the CPU, H and W >= 1. size: >= 1. Throws
// c10::Error for another dtype or shape.
at::Tensor ResizeAndCrop(const at::Tensor& image, int64_t size);

// Returns uint8 [channels, H, W]: of an RGB image of which one channel is
// wanted, its brightness (0.299 R + 0.587 G + 0.114 B, Rec. ITU-R BT.601); of a
// grey one three equal channels. channels: 1 or 3.
at::Tensor WithChannels(const at::Tensor& image, int64_t channels);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_IMAGE_RESIZE_H_
