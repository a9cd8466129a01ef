#include "ps/order_kernels.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "ps/cpu.h"
#include "runtime/base/copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace miniray::ps {
namespace {

// Calls compare(low, high) for each comparator of a network that sorts n
// values: Batcher's merge exchange (Knuth, The Art of Computer Programming 3,
// 5.2.2, algorithm M). Optimal up to 8 values; 63 comparators for 16, where 60
// are the fewest known.
template <class Compare>
constexpr void ForEachComparator(size_t n, Compare compare) {
  size_t top = 1;
  while (2 * top < n) top *= 2;
  if (n < 2) return;
  for (size_t p = top; p > 0; p /= 2) {
    size_t q = top;
    size_t r = 0;
    for (size_t d = p;; d = q - p, q /= 2, r = p) {
      for (size_t i = 0; i + d < n; ++i) {
        if ((i & p) == r) compare(i, i + d);
      }
      if (q == p) break;
    }
  }
}

// Elements of a row: a few dozen rows fit into the L1 cache.
constexpr int64_t kRow = 256;

// Rows [n][kRow] of what n inputs have from `begin` on, sorted down the
// columns.
template <class T>
class SortedRows {
 public:
  explicit SortedRows(size_t n) : n_(n), values_(n * kRow) {
    ForEachComparator(
        n, [this](size_t a, size_t b) { network_.emplace_back(a, b); });
  }

  [[gnu::always_inline]] void Load(absl::Span<const T* const> inputs,
                                   int64_t begin, int64_t length) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    for (size_t k = 0; k < n_; ++k) {
      const T* const from = inputs[k] + begin;
      T* const to = values_.data() + k * kRow;
      for (int64_t i = 0; i < length; ++i) {
        to[i] = from[i] == from[i] ? from[i] : kInfinity;
      }
    }
    for (const auto& [a, b] : network_) {
      T* __restrict const low = values_.data() + a * kRow;
      T* __restrict const high = values_.data() + b * kRow;
      for (int64_t i = 0; i < length; ++i) {
        const T x = low[i];
        const T y = high[i];
        low[i] = x < y ? x : y;
        high[i] = x < y ? y : x;
      }
    }
  }

  const T* operator[](size_t k) const { return values_.data() + k * kRow; }

 private:
  const size_t n_;
  std::vector<T> values_;
  std::vector<std::pair<size_t, size_t>> network_;
};

// The part [begin, size) in rows, for any number of inputs.
template <class T>
[[gnu::always_inline]] inline void TrimmedMeanInRows(
    absl::Span<const T* const> inputs, size_t cut, int64_t begin, int64_t size,
    T* out) {
  const size_t n = inputs.size();
  const double scale = 1.0 / static_cast<double>(n - 2 * cut);
  SortedRows<T> rows(n);
  double sums[kRow];
  for (; begin < size; begin += kRow) {
    const int64_t length = std::min(kRow, size - begin);
    rows.Load(inputs, begin, length);
    for (int64_t i = 0; i < length; ++i) {
      sums[i] = static_cast<double>(rows[cut][i]);
    }
    for (size_t k = cut + 1; k < n - cut; ++k) {
      const T* const row = rows[k];
      for (int64_t i = 0; i < length; ++i) {
        sums[i] += static_cast<double>(row[i]);
      }
    }
    for (int64_t i = 0; i < length; ++i) {
      out[begin + i] = static_cast<T>(sums[i] * scale);
    }
  }
}

template <class T>
MR_AVX2 void TrimmedMeanInRowsAvx2(absl::Span<const T* const> inputs,
                                   size_t cut, int64_t begin, int64_t size,
                                   T* out) {
  TrimmedMeanInRows(inputs, cut, begin, size, out);
}

template <class T>
void TrimmedMeanFrom(absl::Span<const T* const> inputs, size_t cut,
                     int64_t begin, int64_t size, T* out) {
  if (begin >= size) return;
  if (HasAvx2()) {
    return TrimmedMeanInRowsAvx2(inputs, cut, begin, size, out);
  }
  TrimmedMeanInRows(inputs, cut, begin, size, out);
}

template <class T>
[[gnu::always_inline]] inline void AroundMedian(
    absl::Span<const T* const> inputs, size_t keep, int64_t size, T* out) {
  const size_t n = inputs.size();
  const double scale = 1.0 / static_cast<double>(keep);
  SortedRows<T> rows(n);
  double sums[kRow];
  for (int64_t begin = 0; begin < size; begin += kRow) {
    const int64_t length = std::min(kRow, size - begin);
    rows.Load(inputs, begin, length);
    const T* const middle_low = rows[(n - 1) / 2];
    const T* const middle_high = rows[n / 2];
    // What is closest to the median is a window of the sorted values. It moves
    // up as long as what leaves it is farther than what enters.
    for (size_t first = 0; first + keep <= n; ++first) {
      double window[kRow];
      for (int64_t i = 0; i < length; ++i) {
        window[i] = static_cast<double>(rows[first][i]);
      }
      for (size_t k = first + 1; k < first + keep; ++k) {
        const T* const row = rows[k];
        for (int64_t i = 0; i < length; ++i) {
          window[i] += static_cast<double>(row[i]);
        }
      }
      if (first == 0) {
        std::copy(window, window + length, sums);
        continue;
      }
      const T* const leaves = rows[first - 1];
      const T* const enters = rows[first + keep - 1];
      for (int64_t i = 0; i < length; ++i) {
        const double median = 0.5 * static_cast<double>(middle_low[i]) +
                              0.5 * static_cast<double>(middle_high[i]);
        const bool moves = median - static_cast<double>(leaves[i]) >
                           static_cast<double>(enters[i]) - median;
        sums[i] = moves ? window[i] : sums[i];
      }
    }
    for (int64_t i = 0; i < length; ++i) {
      out[begin + i] = static_cast<T>(sums[i] * scale);
    }
  }
}

template <class T>
MR_AVX2 void AroundMedianAvx2(absl::Span<const T* const> inputs, size_t keep,
                              int64_t size, T* out) {
  AroundMedian(inputs, keep, size, out);
}

template <class T>
void AroundMedianDispatch(absl::Span<const T* const> inputs, size_t keep,
                          int64_t size, T* out) {
  if (HasAvx2()) return AroundMedianAvx2(inputs, keep, size, out);
  AroundMedian(inputs, keep, size, out);
}

#if defined(__x86_64__)

// Few inputs: a vector of each stays in a register, and the network is unrolled
// between them.
constexpr size_t kMostInRegisters = 16;
constexpr int64_t kVector = 8;
// What goes past the caches is collected in blocks.
constexpr int64_t kBlock = 2048;

struct Comparator {
  size_t low, high;
};

template <size_t N>
consteval size_t NumComparators() {
  size_t count = 0;
  ForEachComparator(N, [&](size_t, size_t) { ++count; });
  return count;
}

template <size_t N>
consteval auto MakeNetwork() {
  std::array<Comparator, NumComparators<N>()> network = {};
  size_t next = 0;
  ForEachComparator(N, [&](size_t a, size_t b) { network[next++] = {a, b}; });
  return network;
}

template <size_t N>
constexpr auto kNetwork = MakeNetwork<N>();

// These have the same outcome as the loop in SortedRows for equal values too.
MR_AVX2 [[gnu::always_inline]] inline void Exchange(__m256& a, __m256& b) {
  const __m256 low = _mm256_min_ps(a, b);
  b = _mm256_max_ps(b, a);
  a = low;
}

template <size_t N, size_t... I>
MR_AVX2 [[gnu::always_inline]] inline void Sort(__m256 (&v)[N],
                                                std::index_sequence<I...>) {
  (Exchange(v[kNetwork<N>[I].low], v[kNetwork<N>[I].high]), ...);
}

// low, high += the values in the two halves of v.
MR_AVX2 [[gnu::always_inline]] inline void Add(__m256 v, __m256d& low,
                                               __m256d& high) {
  low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
  high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

// Adds the values [cut, N - cut). A `cut` that the compiler knows leaves it
// nothing to branch on.
template <size_t N, size_t... I>
MR_AVX2 [[gnu::always_inline]] inline void Sum(const __m256 (&v)[N], size_t cut,
                                               std::index_sequence<I...>,
                                               __m256d& low, __m256d& high) {
  ((I >= cut && I + cut < N ? Add(v[I], low, high) : static_cast<void>(0)),
   ...);
}

// `size` is a multiple of kVector.
template <size_t N, bool kMedian>
MR_AVX2 void TrimmedMeanInRegisters(const float* const* inputs, size_t any_cut,
                                    int64_t size, float* out) {
  const size_t cut = kMedian ? (N - 1) / 2 : any_cut;
  const __m256d scale = _mm256_set1_pd(1.0 / static_cast<double>(N - 2 * cut));
  const __m256 infinity =
      _mm256_set1_ps(std::numeric_limits<float>::infinity());
  const bool past_cache =
      static_cast<size_t>(size) * sizeof(float) >= kPastCacheBytes;
  alignas(64) float result[kBlock];
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t length = std::min(kBlock, size - begin);
    float* const target = past_cache ? result : out + begin;
    for (int64_t i = 0; i < length; i += kVector) {
      __m256 v[N];
#pragma GCC unroll 16
      for (size_t k = 0; k < N; ++k) {
        // Of NaN and another value this is the other.
        v[k] = _mm256_min_ps(_mm256_loadu_ps(inputs[k] + begin + i), infinity);
      }
      Sort(v, std::make_index_sequence<NumComparators<N>()>());
      // Minus zero is what changes no sum.
      __m256d low = _mm256_set1_pd(-0.0);
      __m256d high = low;
      Sum(v, cut, std::make_index_sequence<N>(), low, high);
      _mm_storeu_ps(target + i, _mm256_cvtpd_ps(_mm256_mul_pd(low, scale)));
      _mm_storeu_ps(target + i + 4,
                    _mm256_cvtpd_ps(_mm256_mul_pd(high, scale)));
    }
    if (past_cache) {
      CopyPastCache(out + begin, result,
                    static_cast<size_t>(length) * sizeof(float));
    }
  }
}

using RegisterFunction = void (*)(const float* const*, size_t, int64_t, float*);

template <bool kMedian, size_t... N>
constexpr std::array<RegisterFunction, sizeof...(N)> RegisterFunctions(
    std::index_sequence<N...>) {
  return {&TrimmedMeanInRegisters<N + 1, kMedian>...};
}

// Does a multiple of kVector of the elements, from the first on; returns how
// many.
int64_t TrimmedMeanPrefix(absl::Span<const float* const> inputs, size_t cut,
                          int64_t size, float* out) {
  constexpr auto kNumbers = std::make_index_sequence<kMostInRegisters>();
  static constexpr auto kMedian = RegisterFunctions<true>(kNumbers);
  static constexpr auto kTrimmed = RegisterFunctions<false>(kNumbers);
  const size_t n = inputs.size();
  if (n > kMostInRegisters || !HasAvx2()) return 0;
  const int64_t whole = size / kVector * kVector;
  const auto& functions = cut == (n - 1) / 2 ? kMedian : kTrimmed;
  functions[n - 1](inputs.data(), cut, whole, out);
  return whole;
}

#else

int64_t TrimmedMeanPrefix(absl::Span<const float* const>, size_t, int64_t,
                          float*) {
  return 0;
}

#endif

}  // namespace

void TrimmedMean(absl::Span<const float* const> inputs, size_t cut,
                 int64_t size, float* out) {
  TrimmedMeanFrom(inputs, cut, TrimmedMeanPrefix(inputs, cut, size, out), size,
                  out);
}

void TrimmedMean(absl::Span<const double* const> inputs, size_t cut,
                 int64_t size, double* out) {
  TrimmedMeanFrom(inputs, cut, 0, size, out);
}

void MeanAroundMedian(absl::Span<const float* const> inputs, size_t keep,
                      int64_t size, float* out) {
  AroundMedianDispatch(inputs, keep, size, out);
}

void MeanAroundMedian(absl::Span<const double* const> inputs, size_t keep,
                      int64_t size, double* out) {
  AroundMedianDispatch(inputs, keep, size, out);
}

}  // namespace miniray::ps
