#include "ml/image/resize.h"

#include <algorithm>
#include <cmath>

#include "ATen/ATen.h"

namespace miniray::ml {
namespace {

// How many times its shorter side a picture's longer one is scaled with: what
// is further from the middle is cut off in the end, and of a strip that is made
// larger it would take memory without bound.
constexpr int64_t kLongest = 4;

// Returns the middle of a picture that is longer than that.
at::Tensor WithoutEnds(const at::Tensor& image) {
  const int64_t longest = kLongest * std::min(image.size(1), image.size(2));
  at::Tensor middle = image;
  for (const int64_t side : {1, 2}) {
    const int64_t length = image.size(side);
    if (length <= longest) continue;
    middle = middle.narrow(side, (length - longest) / 2, longest);
  }
  return middle;
}

at::Tensor ToByte(const at::Tensor& values) {
  return values.round().clamp(0, 255).to(at::kByte);
}

}  // namespace

at::Tensor ResizeAndCrop(const at::Tensor& image, int64_t size) {
  TORCH_CHECK(image.dim() == 3 && image.scalar_type() == at::kByte &&
                  image.numel() > 0 && size >= 1,
              "an image is uint8 [C, H, W] and its new size 1 or more");
  at::Tensor scaled = image;
  if (std::min(image.size(1), image.size(2)) != size) {
    const at::Tensor middle = WithoutEnds(image);
    const int64_t height = middle.size(1);
    const int64_t width = middle.size(2);
    const double scale = static_cast<double>(size) /
                         static_cast<double>(std::min(height, width));
    const auto side = [&](int64_t length) {
      return std::max<int64_t>(
          size, std::llround(static_cast<double>(length) * scale));
    };
    scaled = ToByte(at::_upsample_bilinear2d_aa(
                        middle.unsqueeze(0).to(at::kFloat),
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
