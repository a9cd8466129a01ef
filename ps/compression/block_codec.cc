#include "ps/compression/block_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ps/cpu.h"

namespace miniray::ps {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInfinite = 0x7f800000;

// Both loops of the conversions follow F. Giesen's float <-> half routines: no
// branches, so that they run in vectors.
[[gnu::always_inline]] inline uint16_t ToHalf(float value) {
  constexpr uint32_t kLargest = 0x477fe000;         // 65504
  constexpr uint32_t kSmallestNormal = 113u << 23;  // 2^-14
  // Added as a float it brings the bits of a half below 2^-14 to the lower end.
  constexpr uint32_t kShift = ((127u - 15) + (23 - 10) + 1) << 23;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits & ~kMagnitude) >> 16;
  const uint32_t magnitude = bits & kMagnitude;
  const uint32_t finite = magnitude < kLargest ? magnitude : kLargest;
  const uint32_t odd = (finite >> 13) & 1;
  const uint32_t normal = (finite + ((15u - 127u) << 23) + 0xfff + odd) >> 13;
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(finite) +
                                                 std::bit_cast<float>(kShift)) -
                         kShift;
  uint32_t half = finite < kSmallestNormal ? small : normal;
  half = magnitude == kInfinite ? 0x7c00 : half;
  half = magnitude > kInfinite ? 0x7e00 : half;
  return static_cast<uint16_t>(half | sign);
}

[[gnu::always_inline]] inline float FromHalf(uint16_t half) {
  constexpr uint32_t kExponent = 0x7c00u << 13;
  constexpr uint32_t kSmallestNormal = 113u << 23;
  const uint32_t bits = (half & 0x7fffu) << 13;
  const uint32_t exponent = bits & kExponent;
  const uint32_t normal = bits + ((127u - 15) << 23);
  const uint32_t infinite = normal + ((128u - 16) << 23);
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(normal + (1u << 23)) -
                              std::bit_cast<float>(kSmallestNormal));
  uint32_t magnitude = exponent == 0 ? small : normal;
  magnitude = exponent == kExponent ? infinite : magnitude;
  return std::bit_cast<float>(magnitude | (half & 0x8000u) << 16);
}

[[gnu::always_inline]] inline uint16_t ToBfloat(float value) {
  constexpr uint32_t kLargest = 0x7f7f0000;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits & ~kMagnitude) >> 16;
  const uint32_t magnitude = bits & kMagnitude;
  const uint32_t finite = magnitude < kLargest ? magnitude : kLargest;
  uint32_t bfloat = (finite + 0x7fff + ((finite >> 16) & 1)) >> 16;
  bfloat = magnitude == kInfinite ? 0x7f80 : bfloat;
  bfloat = magnitude > kInfinite ? 0x7fc0 : bfloat;
  return static_cast<uint16_t>(bfloat | sign);
}

[[gnu::always_inline]] inline float FromBfloat(uint16_t bfloat) {
  return std::bit_cast<float>(uint32_t{bfloat} << 16);
}

// Of a type of two bytes.
template <class Convert>
[[gnu::always_inline]] inline void EncodeNarrow(const float* values,
                                                int64_t size, char* out,
                                                Convert convert) {
  alignas(64) uint16_t narrow[kCodecBlock];
  for (int64_t i = 0; i < size; ++i) narrow[i] = convert(values[i]);
  std::memcpy(out, narrow, static_cast<size_t>(size) * sizeof(uint16_t));
}

template <class Convert>
[[gnu::always_inline]] inline void DecodeNarrow(const char* bytes, int64_t size,
                                                float* values,
                                                Convert convert) {
  alignas(64) uint16_t narrow[kCodecBlock];
  std::memcpy(narrow, bytes, static_cast<size_t>(size) * sizeof(uint16_t));
  for (int64_t i = 0; i < size; ++i) values[i] = convert(narrow[i]);
}

constexpr int64_t kScaled = 256;  // Values that share a scale.
constexpr float kLevels = 127;
constexpr uint32_t kTiny = (127u - 100) << 23;  // 2^-100

int64_t NumScales(int64_t size) { return (size + kScaled - 1) / kScaled; }

[[gnu::always_inline]] inline void EncodeInt8(const float* values, int64_t size,
                                              char* out) {
  // A float of this size has its unit in the last place: adding it rounds.
  constexpr float kRound = 12582912;  // 1.5 * 2^23
  float scales[kCodecBlock / kScaled];
  int8_t* const levels =
      reinterpret_cast<int8_t*>(out + NumScales(size) * sizeof(float));
  for (int64_t begin = 0; begin < size; begin += kScaled) {
    const int64_t length = std::min(kScaled, size - begin);
    const float* const block = values + begin;
    uint32_t largest = 0;
    for (int64_t i = 0; i < length; ++i) {
      largest =
          std::max(largest, std::bit_cast<uint32_t>(block[i]) & kMagnitude);
    }
    float scale = 0, inverse = 0;
    if (largest >= kInfinite) {
      scale = std::numeric_limits<float>::quiet_NaN();
    } else if (largest >= kTiny) {
      scale = std::bit_cast<float>(largest) / kLevels;
      inverse = kLevels / std::bit_cast<float>(largest);
    }
    scales[begin / kScaled] = scale;
    if (inverse == 0) {
      std::memset(levels + begin, 0, static_cast<size_t>(length));
      continue;
    }
    int8_t* const to = levels + begin;
    for (int64_t i = 0; i < length; ++i) {
      to[i] = static_cast<int8_t>(
          std::bit_cast<int32_t>(block[i] * inverse + kRound) -
          std::bit_cast<int32_t>(kRound));
    }
  }
  std::memcpy(out, scales,
              static_cast<size_t>(NumScales(size)) * sizeof(float));
}

[[gnu::always_inline]] inline void DecodeInt8(const char* bytes, int64_t size,
                                              float* values) {
  float scales[kCodecBlock / kScaled];
  const auto scale_bytes = static_cast<size_t>(NumScales(size)) * sizeof(float);
  std::memcpy(scales, bytes, scale_bytes);
  const auto* levels = reinterpret_cast<const int8_t*>(bytes + scale_bytes);
  for (int64_t begin = 0; begin < size; begin += kScaled) {
    const float scale = scales[begin / kScaled];
    const int64_t end = std::min(begin + kScaled, size);
    for (int64_t i = begin; i < end; ++i) {
      values[i] = static_cast<float>(levels[i]) * scale;
    }
  }
}

int64_t NumKept(double fraction, int64_t size) {
  const auto wanted =
      static_cast<int64_t>(std::ceil(fraction * static_cast<double>(size)));
  return std::clamp<int64_t>(wanted, 1, size);
}

void EncodeTopK(const float* values, int64_t size, int64_t kept, char* out) {
  // Largest magnitude first, of equal ones the first place.
  constexpr int kPlaceBits = 16;
  constexpr uint64_t kPlace = (1 << kPlaceBits) - 1;
  uint64_t keys[kCodecBlock];
  for (int64_t i = 0; i < size; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & kMagnitude;
    keys[i] = uint64_t{kMagnitude - magnitude} << kPlaceBits |
              static_cast<uint64_t>(i);
  }
  if (kept < size) std::nth_element(keys, keys + kept, keys + size);
  uint16_t places[kCodecBlock];
  for (int64_t k = 0; k < kept; ++k) {
    places[k] = static_cast<uint16_t>(keys[k] & kPlace);
  }
  std::sort(places, places + kept);
  float largest[kCodecBlock];
  for (int64_t k = 0; k < kept; ++k) largest[k] = values[places[k]];
  const auto value_bytes = static_cast<size_t>(kept) * sizeof(float);
  std::memcpy(out, largest, value_bytes);
  std::memcpy(out + value_bytes, places,
              static_cast<size_t>(kept) * sizeof(uint16_t));
}

bool DecodeTopK(const char* bytes, int64_t size, int64_t kept, float* values) {
  float largest[kCodecBlock];
  uint16_t places[kCodecBlock];
  const auto value_bytes = static_cast<size_t>(kept) * sizeof(float);
  std::memcpy(largest, bytes, value_bytes);
  std::memcpy(places, bytes + value_bytes,
              static_cast<size_t>(kept) * sizeof(uint16_t));
  std::fill(values, values + size, 0.0f);
  int64_t before = -1;
  for (int64_t k = 0; k < kept; ++k) {
    if (places[k] <= before || places[k] >= size) return false;
    before = places[k];
    values[before] = largest[k];
  }
  return true;
}

[[gnu::always_inline]] inline void Encode(Compression method,
                                          const float* values, int64_t size,
                                          char* out) {
  switch (method) {
    case Compression::kFp16:
      return EncodeNarrow(values, size, out, [](float v) { return ToHalf(v); });
    case Compression::kBf16:
      return EncodeNarrow(values, size, out,
                          [](float v) { return ToBfloat(v); });
    default:
      return EncodeInt8(values, size, out);
  }
}

[[gnu::always_inline]] inline void Decode(Compression method, const char* bytes,
                                          int64_t size, float* values) {
  switch (method) {
    case Compression::kFp16:
      return DecodeNarrow(bytes, size, values,
                          [](uint16_t v) { return FromHalf(v); });
    case Compression::kBf16:
      return DecodeNarrow(bytes, size, values,
                          [](uint16_t v) { return FromBfloat(v); });
    default:
      return DecodeInt8(bytes, size, values);
  }
}

MR_AVX2 void EncodeAvx2(Compression method, const float* values, int64_t size,
                        char* out) {
  Encode(method, values, size, out);
}

MR_AVX2 void DecodeAvx2(Compression method, const char* bytes, int64_t size,
                        float* values) {
  Decode(method, bytes, size, values);
}

int64_t BlockBytes(const CompressionOptions& options, int64_t size) {
  switch (options.method) {
    case Compression::kInt8:
      return NumScales(size) * static_cast<int64_t>(sizeof(float)) + size;
    case Compression::kTopK:
      return NumKept(options.top_k_fraction, size) *
             static_cast<int64_t>(sizeof(float) + sizeof(uint16_t));
    default:
      return size * static_cast<int64_t>(sizeof(uint16_t));
  }
}

}  // namespace

int64_t EncodedBytes(const CompressionOptions& options, int64_t size) {
  const int64_t rest = size % kCodecBlock;
  return size / kCodecBlock * BlockBytes(options, kCodecBlock) +
         (rest == 0 ? 0 : BlockBytes(options, rest));
}

void EncodeBlock(const CompressionOptions& options, const float* values,
                 int64_t size, char* out) {
  if (options.method == Compression::kTopK) {
    EncodeTopK(values, size, NumKept(options.top_k_fraction, size), out);
  } else if (HasAvx2()) {
    EncodeAvx2(options.method, values, size, out);
  } else {
    Encode(options.method, values, size, out);
  }
}

bool DecodeBlock(const CompressionOptions& options, const char* bytes,
                 int64_t size, float* values) {
  if (options.method == Compression::kTopK) {
    return DecodeTopK(bytes, size, NumKept(options.top_k_fraction, size),
                      values);
  }
  if (HasAvx2()) {
    DecodeAvx2(options.method, bytes, size, values);
  } else {
    Decode(options.method, bytes, size, values);
  }
  return true;
}

}  // namespace miniray::ps
