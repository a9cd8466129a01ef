#include "ml/image/grid.h"

#include <algorithm>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "ml/data/describe_tensor.h"
#include "ml/image/png.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

constexpr int kPadding = 2;

absl::Status CheckGrid(const at::Tensor& images, int columns, int padding) {
  if (columns < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a grid of ", columns, " columns; expected at least 1"));
  }
  if (padding < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a grid with padding ", padding, "; expected 0 or more"));
  }
  if (!images.defined() ||
      (images.scalar_type() != at::kByte && !images.is_floating_point()) ||
      images.dim() != 4 || (images.size(1) != 1 && images.size(1) != 3) ||
      images.numel() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a grid needs uint8 or floating [N, C, H, W] with C = 1 "
                     "or 3, not ",
                     DescribeTensor(images)));
  }
  return absl::OkStatus();
}

// Returns the images of as many rows of a grid as a PNG has pixels for; of one,
// at least. A training or a generation is not to fail by its last picture.
at::Tensor RowsThatFit(const at::Tensor& images, int columns) {
  const int64_t per_row = std::min<int64_t>(columns, images.size(0));
  const int64_t width = per_row * (images.size(3) + kPadding) + kPadding;
  const int64_t rows =
      (kMaxPngPixels / width - kPadding) / (images.size(2) + kPadding);
  return images.slice(/*dim=*/0, 0, std::max<int64_t>(rows, 1) * per_row);
}

}  // namespace

at::Tensor ToUint8(const at::Tensor& images) {
  TORCH_CHECK(images.is_floating_point(), "ToUint8 takes floating images, not ",
              images.scalar_type());
  // The copy makes the steps in place safe.
  return images.detach()
      .to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true)
      .nan_to_num_(/*nan=*/-1.0, /*posinf=*/1.0, /*neginf=*/-1.0)
      .clamp_(-1.0, 1.0)
      .add_(1.0)
      .mul_(127.5)
      .round_()
      .to(at::kByte);
}

at::Tensor MakeGrid(const at::Tensor& images, int columns, int padding) {
  const absl::Status status = CheckGrid(images, columns, padding);
  TORCH_CHECK(status.ok(), std::string(status.message()));
  const at::Tensor pixels =
      images.is_floating_point() ? ToUint8(images) : images.cpu();
  const int64_t count = pixels.size(0);
  const int64_t height = pixels.size(2);
  const int64_t width = pixels.size(3);
  const int64_t per_row = std::min<int64_t>(columns, count);
  const int64_t rows = (count + per_row - 1) / per_row;
  at::Tensor grid =
      at::zeros({pixels.size(1), rows * (height + padding) + padding,
                 per_row * (width + padding) + padding},
                at::kByte);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t top = i / per_row * (height + padding) + padding;
    const int64_t left = i % per_row * (width + padding) + padding;
    grid.narrow(1, top, height).narrow(2, left, width).copy_(pixels[i]);
  }
  return grid;
}

absl::Status SaveImageGrid(const std::string& path, const at::Tensor& images,
                           int columns) {
  MR_RETURN_IF_ERROR(Annotate(CheckGrid(images, columns, kPadding), path));
  return WritePng(path,
                  MakeGrid(RowsThatFit(images, columns), columns, kPadding));
}

}  // namespace miniray::ml
