// The floors: what the memory of this machine takes for a payload, and the
// payload that all transfers carry.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_MEMORY_H_
#define MINIRAY_TOOLS_BENCH_PEERS_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace miniray::bench {

// Floats 0, 1, 2, ..., kPatternPeriod - 1, 0, 1, ...
inline constexpr int kPatternPeriod = 1000;
inline float PatternAt(int64_t i) {
  return static_cast<float>(i % kPatternPeriod);
}

// Fills `out` with `bytes` bytes of the pattern, unless it has that size.
void FillPattern(int64_t bytes, std::vector<char>* out);
// Errors: INTERNAL, not `expected` bytes of the pattern.
absl::Status CheckPattern(const char* data, size_t size, int64_t expected);

// Sum of `count` floats, in as many streams as the compiler likes.
double Sum(const float* data, int64_t count);

// Memory that has been touched.
class WarmMemory {
 public:
  explicit WarmMemory(int64_t bytes);
  // Seconds to copy it to other warm memory, one thread.
  double Copy();
  // The same on all cores, each a part of it.
  double CopyOnAllCores();
  // Seconds to read it once, one thread.
  double Read();

 private:
  std::vector<char> from_;
  std::vector<char> to_;
  double sum_ = 0;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_MEMORY_H_
