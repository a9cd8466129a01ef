// Training images that are different each time they are seen.

#ifndef MINIRAY_ML_DATA_AUGMENT_H_
#define MINIRAY_ML_DATA_AUGMENT_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace miniray::ml {

// Usual for images of 32 x 32 pixels (He et al., Deep Residual Learning for
// Image Recognition, CVPR 2016, section 4.2).
inline constexpr int64_t kUsualShift = 4;

// Returns images of which each is mirrored (left to right) or not, and moved by
// up to `shift` pixels in both directions; what comes in from outside is 0. All
// are equally likely. A function of the arguments alone, the same on every
// platform.
//
// images: uint8 [B, C, H, W] on the CPU. shift: >= 0.
at::Tensor FlipAndShift(const at::Tensor& images, int64_t shift, uint64_t seed);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_AUGMENT_H_
