#include "runtime/base/copy.h"

#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace miniray {
namespace {

// How far ahead of the copy its source is fetched: past the end of a page,
// where the CPU's own prefetchers stop.
constexpr size_t kPrefetchBytes = 2048;

}  // namespace

void CopyPastCache(void* to, const void* from, size_t size) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
#ifdef __SSE2__
  constexpr size_t kLine = 64;
  if (size >= 2 * kLine) {
    const size_t head =
        (kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine;
    std::memcpy(target, source, head);
    target += head;
    source += head;
    size -= head;
    for (; size >= kLine; size -= kLine, target += kLine, source += kLine) {
      // Beyond the end it is without effect.
      __builtin_prefetch(reinterpret_cast<const void*>(
          reinterpret_cast<uintptr_t>(source) + kPrefetchBytes));
      const auto* const in = reinterpret_cast<const __m128i*>(source);
      auto* const out = reinterpret_cast<__m128i*>(target);
      const __m128i a = _mm_loadu_si128(in);
      const __m128i b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2);
      const __m128i d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();
  }
#endif
  std::memcpy(target, source, size);
}

void CopyLarge(void* to, const void* from, size_t size) {
  if (size >= kTwoThreadBytes) {
    const size_t half = size / 2;
    try {
      std::thread second([=] {
        CopyPastCache(static_cast<char*>(to) + half,
                      static_cast<const char*>(from) + half, size - half);
      });
      CopyPastCache(to, from, half);
      second.join();
      return;
    } catch (const std::system_error&) {
      // No more threads: one will do.
    }
  }
  if (size >= kPastCacheBytes) return CopyPastCache(to, from, size);
  std::memcpy(to, from, size);
}

}  // namespace miniray
