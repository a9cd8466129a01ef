// The plainest loop that reads some arrays and writes one.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_READ_WRITE_LOOP_H_
#define MINIRAY_TOOLS_BENCH_PEERS_READ_WRITE_LOOP_H_

#include <array>
#include <cstdint>

namespace miniray::bench {

inline constexpr int kLoopInputs = 4;

// out[i] = the inputs' bits at i, one xor the other, for i in [begin, end): the
// least that keeps a compiler from not reading them.
void ReadWriteLoop(const std::array<const float*, kLoopInputs>& inputs,
                   int64_t begin, int64_t end, float* out);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_READ_WRITE_LOOP_H_
