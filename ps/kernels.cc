#include "ps/kernels.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ps/cpu.h"
#include "runtime/base/copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

#if defined(__x86_64__)

// Floats of a cache line, and of a register.
constexpr int64_t kLineFloats = 16;
constexpr int64_t kRegisterFloats = 8;

// The last group over whole lines from `begin`, as Accumulate, but each result
// goes from its register past the caches, and is looked at on the way: reading,
// writing and checking overlap, where a block that waits in the cache does one
// after the other. Returns whether all results are finite.
template <size_t kInputs, bool kFirst>
MR_AVX2 bool AccumulatePastCache(const float* const* inputs,
                                 const double* coefficients, int64_t begin,
                                 int64_t size, const double* sums, float* out) {
  const float* in[kInputs];
  __m256d coefficient[kInputs];
  for (size_t k = 0; k < kInputs; ++k) {
    in[k] = inputs[k] + begin;
    coefficient[k] = _mm256_set1_pd(coefficients[k]);
  }
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256i bad = _mm256_setzero_si256();
  for (int64_t line = 0; line < size; line += kLineFloats) {
    for (size_t k = 0; k < kInputs; ++k) {
      // Beyond the end it is without effect.
      _mm_prefetch(
          reinterpret_cast<const char*>(
              reinterpret_cast<uintptr_t>(in[k] + line) + kPrefetchBytes),
          _MM_HINT_T0);
    }
    for (int64_t i = line; i < line + kLineFloats; i += kRegisterFloats) {
      __m256d low = _mm256_mul_pd(coefficient[0],
                                  _mm256_cvtps_pd(_mm_loadu_ps(in[0] + i)));
      __m256d high = _mm256_mul_pd(
          coefficient[0], _mm256_cvtps_pd(_mm_loadu_ps(in[0] + i + 4)));
      if constexpr (!kFirst) {
        low = _mm256_add_pd(_mm256_loadu_pd(sums + i), low);
        high = _mm256_add_pd(_mm256_loadu_pd(sums + i + 4), high);
      }
      for (size_t k = 1; k < kInputs; ++k) {
        low = _mm256_add_pd(
            low, _mm256_mul_pd(coefficient[k],
                               _mm256_cvtps_pd(_mm_loadu_ps(in[k] + i))));
        high = _mm256_add_pd(
            high, _mm256_mul_pd(coefficient[k],
                                _mm256_cvtps_pd(_mm_loadu_ps(in[k] + i + 4))));
      }
      const __m256 result =
          _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
      const __m256i bits = _mm256_castps_si256(result);
      bad = _mm256_or_si256(
          bad, _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent));
      _mm256_stream_ps(out + begin + i, result);
    }
  }
  return _mm256_testz_si256(bad, bad) != 0;
}

template <bool kFirst>
MR_AVX2 bool AccumulateGroupPastCache(const float* const* inputs,
                                      const double* coefficients,
                                      size_t num_inputs, int64_t begin,
                                      int64_t size, const double* sums,
                                      float* out) {
  switch (num_inputs) {
    case 1:
      return AccumulatePastCache<1, kFirst>(inputs, coefficients, begin, size,
                                            sums, out);
    case 2:
      return AccumulatePastCache<2, kFirst>(inputs, coefficients, begin, size,
                                            sums, out);
    case 3:
      return AccumulatePastCache<3, kFirst>(inputs, coefficients, begin, size,
                                            sums, out);
    default:
      return AccumulatePastCache<kGroup, kFirst>(inputs, coefficients, begin,
                                                 size, sums, out);
  }
}

// Combine of what is large, into the beginning of a cache line. size: whole
// lines.
MR_AVX2 bool CombinePastCache(absl::Span<const float* const> inputs,
                              absl::Span<const double> coefficients,
                              int64_t size, float* out) {
  if (inputs.size() <= kGroup) {
    const bool finite =
        AccumulateGroupPastCache<true>(inputs.data(), coefficients.data(),
                                       inputs.size(), 0, size, nullptr, out);
    _mm_sfence();
    return finite;
  }
  alignas(32) double sums[kBlock];
  bool finite = true;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t length = std::min(kBlock, size - begin);
    size_t k = 0;
    for (; k + kGroup < inputs.size(); k += kGroup) {
      const float* const* in = inputs.data() + k;
      const double* c = coefficients.data() + k;
      if (k == 0) {
        AccumulateGroup<true, false>(in, c, kGroup, begin, length, sums, out);
      } else {
        AccumulateGroup<false, false>(in, c, kGroup, begin, length, sums, out);
      }
    }
    finite = AccumulateGroupPastCache<false>(
                 inputs.data() + k, coefficients.data() + k, inputs.size() - k,
                 begin, length, sums, out) &&
             finite;
  }
  _mm_sfence();
  return finite;
}

// Floats have a way of their own where the result is large.
MR_AVX2 bool CombineAvx2(absl::Span<const float* const> inputs,
                         absl::Span<const double> coefficients, int64_t size,
                         float* out) {
  constexpr uintptr_t kLineBytes = kLineFloats * sizeof(float);
  const bool past_cache =
      !inputs.empty() &&
      static_cast<size_t>(size) * sizeof(float) >= kPastCacheBytes &&
      reinterpret_cast<uintptr_t>(out) % kLineBytes == 0;
  if (!past_cache) return Combine(inputs, coefficients, size, out);
  const int64_t whole = size / kLineFloats * kLineFloats;
  const bool finite = CombinePastCache(inputs, coefficients, whole, out);
  if (whole == size) return finite;
  std::vector<const float*> rest;
  for (const float* input : inputs) rest.push_back(input + whole);
  return Combine(absl::MakeConstSpan(rest), coefficients, size - whole,
                 out + whole) &&
         finite;
}

#endif  // __x86_64__

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
