#include "ml/data/augment.h"

#include <algorithm>
#include <cstdlib>
#include <random>

#include "ATen/ops/zeros_like.h"

namespace miniray::ml {
namespace {

// Uniform in [0, count); std::uniform_int_distribution differs from one
// standard library to the next.
int64_t Draw(std::mt19937_64& random, int64_t count) {
  const auto n = static_cast<uint64_t>(count);
  // Values of the incomplete last cycle are drawn again.
  const uint64_t limit = n * (std::mt19937_64::max() / n);
  uint64_t value;
  do {
    value = random();
  } while (value >= limit);
  return static_cast<int64_t>(value % n);
}

}  // namespace

at::Tensor FlipAndShift(const at::Tensor& images, int64_t shift,
                        uint64_t seed) {
  std::mt19937_64 random(seed);
  at::Tensor result = at::zeros_like(images, at::MemoryFormat::Contiguous);
  const int64_t height = images.size(2);
  const int64_t width = images.size(3);
  for (int64_t i = 0; i < images.size(0); ++i) {
    const bool mirrored = Draw(random, 2) == 1;
    const int64_t down = Draw(random, 2 * shift + 1) - shift;
    const int64_t right = Draw(random, 2 * shift + 1) - shift;
    const int64_t rows = height - std::abs(down);
    const int64_t columns = width - std::abs(right);
    if (rows <= 0 || columns <= 0) continue;  // All of it is outside.
    const at::Tensor image = mirrored ? images[i].flip({2}) : images[i];
    result[i]
        .narrow(1, std::max<int64_t>(down, 0), rows)
        .narrow(2, std::max<int64_t>(right, 0), columns)
        .copy_(image.narrow(1, std::max<int64_t>(-down, 0), rows)
                   .narrow(2, std::max<int64_t>(-right, 0), columns));
  }
  return result;
}

}  // namespace miniray::ml
