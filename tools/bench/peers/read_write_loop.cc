#include "tools/bench/peers/read_write_loop.h"

#include <bit>

namespace miniray::bench {

void ReadWriteLoop(const std::array<const float*, kLoopInputs>& inputs,
                   int64_t begin, int64_t end, float* out) {
  const auto [a, b, c, d] = inputs;
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    out[i] = std::bit_cast<float>(
        std::bit_cast<uint32_t>(a[i]) ^ std::bit_cast<uint32_t>(b[i]) ^
        std::bit_cast<uint32_t>(c[i]) ^ std::bit_cast<uint32_t>(d[i]));
  }
}

}  // namespace miniray::bench
