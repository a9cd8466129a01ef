// The codecs against values worked out by hand (fp16 and bf16 ones checked with
// NumPy's and LibTorch's conversions), and their bounds on many.

#include "ps/compression/block_codec.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "c10/util/BFloat16.h"
#include "c10/util/Half.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string Encoded(const CompressionOptions& options,
                    const std::vector<float>& values) {
  const auto size = static_cast<int64_t>(values.size());
  std::string bytes(static_cast<size_t>(EncodedBytes(options, size)), '?');
  EncodeBlock(options, values.data(), size, bytes.data());
  return bytes;
}

std::vector<float> RoundTrip(const CompressionOptions& options,
                             const std::vector<float>& values) {
  const std::string bytes = Encoded(options, values);
  std::vector<float> decoded(values.size(), -1);
  EXPECT_TRUE(DecodeBlock(options, bytes.data(),
                          static_cast<int64_t>(values.size()), decoded.data()));
  return decoded;
}

template <class T>
std::vector<T> As(const std::string& bytes, size_t begin, size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), bytes.data() + begin, count * sizeof(T));
  return values;
}

// Normal numbers of all magnitudes in [2^low, 2^high).
std::vector<float> Numbers(int low, int high, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> exponent(low, high);
  std::vector<float> values(kCodecBlock);
  for (float& value : values) {
    value = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0f : -1.0f);
  }
  return values;
}

TEST(Fp16Test, KnownNumbers) {
  const CompressionOptions fp16{.method = Compression::kFp16};
  // 1 + 2^-11 lies between two halfs and goes to the even one, 1; 1 + 3 * 2^-11
  // to 1 + 2^-9. 2^-24 is the smallest half; half of it goes to 0.
  EXPECT_THAT(
      RoundTrip(fp16, {0, 1, -2.5f, 1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 0x1p-24f,
                       0x1p-25f, 3 * 0x1p-25f, 65504}),
      ElementsAre(0, 1, -2.5f, 1, 1 + 0x1p-9f, 0x1p-24f, 0, 0x1p-23f, 65504));
  EXPECT_THAT(As<uint16_t>(Encoded(fp16, {1, -2, 0.333251953125f}), 0, 3),
              ElementsAre(0x3c00, 0xc000, 0x3555));
}

TEST(Fp16Test, WhatIsTooLargeBecomesTheLargest) {
  const CompressionOptions fp16{.method = Compression::kFp16};
  EXPECT_THAT(RoundTrip(fp16, {65520, -1e30f, 70000}),
              ElementsAre(65504, -65504, 65504));
  const std::vector<float> special = RoundTrip(fp16, {kInf, -kInf, kNan});
  EXPECT_EQ(special[0], kInf);
  EXPECT_EQ(special[1], -kInf);
  EXPECT_TRUE(std::isnan(special[2]));
}

TEST(Fp16Test, AgreesWithLibTorchOnEveryHalfAndBetween) {
  const CompressionOptions fp16{.method = Compression::kFp16};
  std::vector<float> values;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float half =
        c10::detail::fp16_ieee_to_fp32_value(static_cast<uint16_t>(bits));
    if (!std::isfinite(half)) continue;
    // The half itself, and near the middle to its neighbour.
    for (const float factor : {1.0f, 1 + 0x1p-11f, 1 + 0x1.01p-11f}) {
      const float value = half * factor;
      if (std::fabs(value) < 65504) values.push_back(value);
    }
  }
  for (size_t begin = 0; begin < values.size(); begin += kCodecBlock) {
    const std::vector<float> block(
        values.begin() + static_cast<ptrdiff_t>(begin),
        values.begin() + static_cast<ptrdiff_t>(
                             std::min(values.size(), begin + kCodecBlock)));
    std::vector<float> expected;
    for (const float value : block) {
      expected.push_back(static_cast<float>(c10::Half(value)));
    }
    ASSERT_EQ(RoundTrip(fp16, block), expected) << begin;
  }
}

TEST(Bf16Test, KnownNumbersAndLibTorchs) {
  const CompressionOptions bf16{.method = Compression::kBf16};
  // 1 + 2^-8 lies between two: to the even one.
  EXPECT_THAT(RoundTrip(bf16, {0, 1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -3e38f}),
              ElementsAre(0, 1, 1 + 0x1p-6f, -0x1.c4p+127f));
  EXPECT_THAT(RoundTrip(bf16, {std::numeric_limits<float>::max()}),
              ElementsAre(0x1.fep+127f));
  const std::vector<float> special = RoundTrip(bf16, {kInf, -kInf, kNan});
  EXPECT_EQ(special[0], kInf);
  EXPECT_EQ(special[1], -kInf);
  EXPECT_TRUE(std::isnan(special[2]));
  const std::vector<float> values = Numbers(-140, 126, 1);
  std::vector<float> expected;
  for (const float value : values) {
    expected.push_back(static_cast<float>(c10::BFloat16(value)));
  }
  EXPECT_EQ(RoundTrip(bf16, values), expected);
}

TEST(NarrowTest, ErrorsAreWithinTheirBounds) {
  for (const auto& [method, bound] : {std::pair(Compression::kFp16, 0x1p-11),
                                      std::pair(Compression::kBf16, 0x1p-8)}) {
    const std::vector<float> values = Numbers(-13, 15, 2);
    const std::vector<float> decoded = RoundTrip({.method = method}, values);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::fabs(decoded[i] - values[i]),
                bound * std::fabs(values[i]));
    }
  }
}

TEST(Int8Test, ScalesBlocksByTheirLargest) {
  const CompressionOptions int8{.method = Compression::kInt8};
  // The scale is 254 / 127 = 2; 3 lies between 1 and 2 of it, to the even.
  const std::string bytes = Encoded(int8, {254, -254, 3, 5, 0, 0.9f, -6});
  EXPECT_THAT(As<float>(bytes, 0, 1), ElementsAre(2));
  EXPECT_THAT(As<int8_t>(bytes, 4, 7), ElementsAre(127, -127, 2, 2, 0, 0, -3));
  EXPECT_THAT(RoundTrip(int8, {254, -254, 3, 5, 0, 0.9f, -6}),
              ElementsAre(254, -254, 4, 4, 0, 0, -6));
  EXPECT_EQ(EncodedBytes(int8, 7), 11);
}

TEST(Int8Test, A257thValueHasAScaleOfItsOwn) {
  const CompressionOptions int8{.method = Compression::kInt8};
  std::vector<float> values(257, 127);
  values[256] = 0.5f;
  const std::string bytes = Encoded(int8, values);
  EXPECT_EQ(bytes.size(), 2 * 4 + 257);
  EXPECT_THAT(As<float>(bytes, 0, 1), ElementsAre(1));
  EXPECT_EQ(RoundTrip(int8, values)[256], 0.5f / 127 * 127);
}

TEST(Int8Test, ErrorsAreWithinHalfAScale) {
  for (const int high : {-80, 0, 100}) {
    const std::vector<float> values = Numbers(high - 12, high, 3);
    const std::vector<float> decoded =
        RoundTrip({.method = Compression::kInt8}, values);
    for (size_t begin = 0; begin < values.size(); begin += 256) {
      float largest = 0;
      for (size_t i = begin; i < begin + 256; ++i) {
        largest = std::max(largest, std::fabs(values[i]));
      }
      for (size_t i = begin; i < begin + 256; ++i) {
        ASSERT_LE(std::fabs(decoded[i] - values[i]), 0.5001 * largest / 127);
      }
    }
  }
}

TEST(Int8Test, NothingTinyAndNotFinite) {
  const CompressionOptions int8{.method = Compression::kInt8};
  EXPECT_THAT(RoundTrip(int8, {0, -0.0f, 0x1p-101f, 1e-40f}), Each(0));
  for (const float bad : {kInf, -kInf, kNan}) {
    std::vector<float> values(300, 1);
    values[7] = bad;
    const std::vector<float> decoded = RoundTrip(int8, values);
    for (size_t i = 0; i < 256; ++i) ASSERT_TRUE(std::isnan(decoded[i])) << i;
    for (size_t i = 256; i < 300; ++i) ASSERT_EQ(decoded[i], 1) << i;
  }
}

TEST(TopKTest, KeepsTheLargestExactlyAndOfEqualOnesTheFirst) {
  const CompressionOptions top{.method = Compression::kTopK,
                               .top_k_fraction = 0.3};
  // ceil(0.3 * 7) = 3.
  const std::vector<float> values = {0.1f, -5, 2, 0, 2, 3, -2};
  EXPECT_EQ(EncodedBytes(top, 7), 3 * 6);
  const std::string bytes = Encoded(top, values);
  EXPECT_THAT(As<float>(bytes, 0, 3), ElementsAre(-5, 2, 3));
  EXPECT_THAT(As<uint16_t>(bytes, 12, 3), ElementsAre(1, 2, 5));
  EXPECT_THAT(RoundTrip(top, values), ElementsAre(0, -5, 2, 0, 0, 3, 0));
  // One at least; what is not finite first.
  EXPECT_THAT(RoundTrip(top, {4}), ElementsAre(4));
  EXPECT_TRUE(std::isnan(RoundTrip(top, {1, 9, kNan})[2]));
}

// What error feedback rests on: |x - C(x)|^2 <= (1 - k/d) |x|^2.
TEST(TopKTest, IsAContraction) {
  const std::vector<float> values = Numbers(-8, 4, 4);
  for (const double fraction : {0.001, 0.01, 0.1, 0.5}) {
    const std::vector<float> decoded = RoundTrip(
        {.method = Compression::kTopK, .top_k_fraction = fraction}, values);
    double all = 0, lost = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      all += std::pow(values[i], 2);
      lost += std::pow(values[i] - decoded[i], 2);
    }
    EXPECT_LE(lost, (1 - fraction) * all);
  }
}

TEST(TopKTest, MalformedPlacesAreRefused) {
  const CompressionOptions top{.method = Compression::kTopK,
                               .top_k_fraction = 0.5};
  const std::vector<float> values = {1, 2, 3, 4};  // Kept: 2.
  const std::string good = Encoded(top, values);
  std::vector<float> decoded(4);
  for (const auto& [first, second] : {std::pair(1, 1), std::pair(3, 2),
                                      std::pair(0, 4), std::pair(5, 65535)}) {
    std::string bad = good;
    const auto places = {static_cast<uint16_t>(first),
                         static_cast<uint16_t>(second)};
    std::memcpy(bad.data() + 8, places.begin(), 4);
    EXPECT_FALSE(DecodeBlock(top, bad.data(), 4, decoded.data()))
        << first << ", " << second;
  }
}

TEST(EncodedBytesTest, AddsUpBlocks) {
  EXPECT_EQ(EncodedBytes({.method = Compression::kFp16}, 10'000), 20'000);
  // 4096 values have 16 scales; the last 1808 have 8.
  EXPECT_EQ(EncodedBytes({.method = Compression::kInt8}, 10'000),
            10'000 + 4 * (16 + 16 + 8));
  // 41 of 4096, twice, and 19 of 1808.
  EXPECT_EQ(EncodedBytes({.method = Compression::kTopK}, 10'000),
            6 * (41 + 41 + 19));
  EXPECT_EQ(EncodedBytes({.method = Compression::kTopK}, 0), 0);
}

TEST(CompressionOptionsTest, WrongOnesAreNamed) {
  for (const double fraction : {0.0, -1.0, 0.6, std::nan("")}) {
    EXPECT_THAT(std::string(Validate({.method = Compression::kTopK,
                                      .top_k_fraction = fraction},
                                     "to_workers")
                                .message()),
                HasSubstr("to_workers.top_k_fraction"));
  }
  EXPECT_THAT(
      std::string(
          Validate({.method = static_cast<Compression>(77)}, "x").message()),
      HasSubstr("no such compression"));
  EXPECT_TRUE(Validate({.method = Compression::kTopK}, "x").ok());
  EXPECT_EQ(ToString({.method = Compression::kTopK}), "top_k(0.01)");
}

}  // namespace
}  // namespace miniray::ps
