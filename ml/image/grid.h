// Many small images as one picture.
//
// Shape letters: N images, C channels, H height, W width.

#ifndef MINIRAY_ML_IMAGE_GRID_H_
#define MINIRAY_ML_IMAGE_GRID_H_

#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"

namespace miniray::ml {

// Returns uint8 pixels for values in [-1, 1], a generator's range:
// round((x + 1) * 127.5), the inverse of ToUnitRange. Values outside are
// clamped, NaN becomes 0. Same shape, on the CPU, detached from autograd.
//
// images: any floating dtype, any shape. Throws c10::Error for another dtype.
at::Tensor ToUint8(const at::Tensor& images);

// Returns the images row by row in a grid, uint8 [C, H', W'], with `padding`
// black pixels around each: H' = rows * (H + padding) + padding, W' likewise.
// The last row may end in black. Fewer images than columns make a narrower
// grid.
//
// images: uint8, or floating in [-1, 1]; [N, C, H, W], C = 1 or 3.
// Throws c10::Error for another dtype or shape, columns < 1 or padding < 0.
at::Tensor MakeGrid(const at::Tensor& images, int columns, int padding = 2);

// Writes MakeGrid's picture as a PNG.
//
// Errors: InvalidArgument for what MakeGrid would not take; those of WritePng.
absl::Status SaveImageGrid(const std::string& path, const at::Tensor& images,
                           int columns);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_IMAGE_GRID_H_
