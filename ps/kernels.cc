#include "ps/kernels.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ps/cpu.h"
#include "runtime/base/copy.h"

namespace miniray::ps {
namespace {

// Inputs read side by side: few enough for the CPU's prefetchers and registers.
constexpr size_t kGroup = 4;
// Sums of one block wait in the L1 cache between two groups.
constexpr int64_t kBlock = 2048;

// How far ahead of the sums inputs are fetched: past the end of a page, where
// the CPU's own prefetchers stop.
constexpr uintptr_t kPrefetchBytes = 1024;

// One group over `size` elements from `i`; see Accumulate.
template <size_t kInputs, bool kFirst, bool kLast, class T>
[[gnu::always_inline]] inline void AccumulateRun(const T* const (&in)[kInputs],
                                                 const double* coefficient,
                                                 int64_t i, int64_t size,
                                                 double* sums, T* out) {
  // Where `out` is one of the inputs, iterations are independent all the same.
#pragma GCC ivdep
  for (const int64_t end = i + size; i < end; ++i) {
    double sum = coefficient[0] * static_cast<double>(in[0][i]);
    if constexpr (!kFirst) sum = sums[i] + sum;
    for (size_t k = 1; k < kInputs; ++k) {
      sum += coefficient[k] * static_cast<double>(in[k][i]);
    }
    if constexpr (kLast) {
      out[i] = static_cast<T>(sum);
    } else {
      sums[i] = sum;
    }
  }
}

// One group over the block of `size` from `begin`: sums = (kFirst ? 0 : sums) +
// the products, then, if kLast, out = sums, the block alone. Always inlined, so
// that it is compiled for its caller's instruction set.
template <size_t kInputs, bool kFirst, bool kLast, class T>
[[gnu::always_inline]] inline void Accumulate(const T* const* inputs,
                                              const double* coefficients,
                                              int64_t begin, int64_t size,
                                              double* sums, T* out) {
  const T* in[kInputs];
  double coefficient[kInputs];
  for (size_t k = 0; k < kInputs; ++k) {
    in[k] = inputs[k] + begin;
    coefficient[k] = coefficients[k];
  }
  // A cache line of each input.
  constexpr int64_t kLine = 64 / sizeof(T);
  int64_t i = 0;
  for (; i + kLine <= size; i += kLine) {
    for (size_t k = 0; k < kInputs; ++k) {
      // Beyond the end it is without effect.
      __builtin_prefetch(reinterpret_cast<const void*>(
          reinterpret_cast<uintptr_t>(in[k] + i) + kPrefetchBytes));
    }
    AccumulateRun<kInputs, kFirst, kLast>(in, coefficient, i, kLine, sums, out);
  }
  AccumulateRun<kInputs, kFirst, kLast>(in, coefficient, i, size - i, sums,
                                        out);
}

template <bool kFirst, bool kLast, class T>
[[gnu::always_inline]] inline void AccumulateGroup(const T* const* inputs,
                                                   const double* coefficients,
                                                   size_t num_inputs,
                                                   int64_t begin, int64_t size,
                                                   double* sums, T* out) {
  switch (num_inputs) {
    case 1:
      return Accumulate<1, kFirst, kLast>(inputs, coefficients, begin, size,
                                          sums, out);
    case 2:
      return Accumulate<2, kFirst, kLast>(inputs, coefficients, begin, size,
                                          sums, out);
    case 3:
      return Accumulate<3, kFirst, kLast>(inputs, coefficients, begin, size,
                                          sums, out);
    default:
      return Accumulate<kGroup, kFirst, kLast>(inputs, coefficients, begin,
                                               size, sums, out);
  }
}

// An exponent of ones only: infinite or NaN.
template <class T>
[[gnu::always_inline]] inline bool IsNonFinite(T value) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr Bits kExponent = sizeof(T) == 4
                                 ? static_cast<Bits>(0x7f800000u)
                                 : static_cast<Bits>(0x7ff0000000000000u);
  return (std::bit_cast<Bits>(value) & kExponent) == kExponent;
}

template <class T>
[[gnu::always_inline]] inline bool AllFinite(const T* values, int64_t size) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  Bits bad = 0;
  for (int64_t i = 0; i < size; ++i) bad |= IsNonFinite(values[i]) ? 1 : 0;
  return bad == 0;
}

template <class T>
[[gnu::always_inline]] inline int64_t FindNonFinite(const T* values,
                                                    int64_t size) {
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t end = std::min(size, begin + kBlock);
    if (AllFinite(values + begin, end - begin)) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (IsNonFinite(values[i])) return i;
    }
  }
  return -1;
}

template <class T>
[[gnu::always_inline]] inline bool Combine(
    absl::Span<const T* const> inputs, absl::Span<const double> coefficients,
    int64_t size, T* out) {
  alignas(32) double sums[kBlock];
  alignas(64) T result[kBlock];
  const size_t num_inputs = inputs.size();
  bool finite = true;
  // A large result is not read again soon: its memory need not be read for it.
  const bool past_cache =
      static_cast<size_t>(size) * sizeof(T) >= kPastCacheBytes;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t length = std::min(kBlock, size - begin);
    T* const target = past_cache ? result : out + begin;
    for (size_t k = 0; k < num_inputs; k += kGroup) {
      const size_t group = std::min(kGroup, num_inputs - k);
      const T* const* in = inputs.data() + k;
      const double* c = coefficients.data() + k;
      const bool last = k + group == num_inputs;
      if (k == 0 && last) {
        AccumulateGroup<true, true>(in, c, group, begin, length, sums, target);
      } else if (k == 0) {
        AccumulateGroup<true, false>(in, c, group, begin, length, sums, target);
      } else if (last) {
        AccumulateGroup<false, true>(in, c, group, begin, length, sums, target);
      } else {
        AccumulateGroup<false, false>(in, c, group, begin, length, sums,
                                      target);
      }
    }
    // While the cache has them.
    finite = AllFinite(target, length) && finite;
    if (past_cache) {
      CopyPastCache(out + begin, result,
                    static_cast<size_t>(length) * sizeof(T));
    }
  }
  return finite;
}

template <class T>
[[gnu::always_inline]] inline double Distance(const T* a, const T* b,
                                              int64_t size) {
  constexpr int64_t kLanes = 8;
  double sums[kLanes] = {};
  const int64_t whole = size / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double difference =
          static_cast<double>(a[i + lane]) - static_cast<double>(b[i + lane]);
      sums[lane] += difference * difference;
    }
  }
  for (int64_t i = whole; i < size; ++i) {
    const double difference =
        static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sums[i - whole] += difference * difference;
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <class T>
MR_AVX2 double DistanceAvx2(const T* a, const T* b, int64_t size) {
  return Distance(a, b, size);
}

template <class T>
double DistanceDispatch(const T* a, const T* b, int64_t size) {
  return HasAvx2() ? DistanceAvx2(a, b, size) : Distance(a, b, size);
}

template <class T>
MR_AVX2 bool CombineAvx2(absl::Span<const T* const> inputs,
                         absl::Span<const double> coefficients, int64_t size,
                         T* out) {
  return Combine(inputs, coefficients, size, out);
}

template <class T>
MR_AVX2 int64_t FindNonFiniteAvx2(const T* values, int64_t size) {
  return FindNonFinite(values, size);
}

template <class T>
bool CombineDispatch(absl::Span<const T* const> inputs,
                     absl::Span<const double> coefficients, int64_t size,
                     T* out) {
  if (HasAvx2()) return CombineAvx2(inputs, coefficients, size, out);
  return Combine(inputs, coefficients, size, out);
}

template <class T>
int64_t FindNonFiniteDispatch(const T* values, int64_t size) {
  if (HasAvx2()) return FindNonFiniteAvx2(values, size);
  return FindNonFinite(values, size);
}

}  // namespace

bool LinearCombination(absl::Span<const float* const> inputs,
                       absl::Span<const double> coefficients, int64_t size,
                       float* out) {
  return CombineDispatch(inputs, coefficients, size, out);
}

bool LinearCombination(absl::Span<const double* const> inputs,
                       absl::Span<const double> coefficients, int64_t size,
                       double* out) {
  return CombineDispatch(inputs, coefficients, size, out);
}

double SquaredDistance(const float* a, const float* b, int64_t size) {
  return DistanceDispatch(a, b, size);
}

double SquaredDistance(const double* a, const double* b, int64_t size) {
  return DistanceDispatch(a, b, size);
}

int64_t FirstNonFinite(const float* values, int64_t size) {
  return FindNonFiniteDispatch(values, size);
}

int64_t FirstNonFinite(const double* values, int64_t size) {
  return FindNonFiniteDispatch(values, size);
}

}  // namespace miniray::ps
