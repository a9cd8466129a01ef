#include "ml/image/resize.h"

#include <algorithm>
#include <cmath>

#include "ATen/ATen.h"

namespace miniray::ml {
namespace {

at::Tensor ToByte(const at::Tensor& values) {
  return values.round().clamp(0, 255).to(at::kByte);
}

}  // namespace

at::Tensor ResizeAndCrop(const at::Tensor& image, int64_t size) {
  TORCH_CHECK(image.dim() == 3 && image.scalar_type() == at::kByte &&
                  image.numel() > 0 && size >= 1,
              "an image is uint8 [C, H, W] and its new size 1 or more");
  const int64_t height = image.size(1);
  const int64_t width = image.size(2);
  at::Tensor scaled = image;
  if (std::min(height, width) != size) {
    const double scale = static_cast<double>(size) /
                         static_cast<double>(std::min(height, width));
    const auto side = [&](int64_t length) {
      return std::max<int64_t>(
          size, std::llround(static_cast<double>(length) * scale));
    };
    scaled = ToByte(at::_upsample_bilinear2d_aa(
                        image.unsqueeze(0).to(at::kFloat),
                        {side(height), side(width)}, /*align_corners=*/false)
                        .squeeze(0));
  }
  return scaled.narrow(1, (scaled.size(1) - size) / 2, size)
      .narrow(2, (scaled.size(2) - size) / 2, size)
      .contiguous();
}

at::Tensor WithChannels(const at::Tensor& image, int64_t channels) {
  if (image.size(0) == channels) return image;
  if (channels == 3) return image.expand({3, -1, -1}).contiguous();
  const at::Tensor values = image.to(at::kFloat);
  return ToByte(0.299 * values[0] + 0.587 * values[1] + 0.114 * values[2])
      .unsqueeze(0);
}

}  // namespace miniray::ml
