#include "ps/kernels.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace miniray::ps {
namespace {

// A size that is neither a multiple of the vector width nor of the block.
constexpr int64_t kSize = 5003;

template <class T>
std::vector<std::vector<T>> RandomInputs(size_t count, int64_t size) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<std::vector<T>> inputs(count);
  for (auto& input : inputs) {
    for (int64_t i = 0; i < size; ++i) {
      input.push_back(static_cast<T>(uniform(generator)));
    }
  }
  return inputs;
}

template <class T>
std::vector<const T*> Pointers(const std::vector<std::vector<T>>& inputs) {
  std::vector<const T*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  return pointers;
}

// The definition, one element at a time.
template <class T>
T Expected(const std::vector<std::vector<T>>& inputs,
           const std::vector<double>& coefficients, int64_t i) {
  double sum = 0;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const double product = coefficients[k] * static_cast<double>(inputs[k][i]);
    sum = k == 0 ? product : sum + product;
  }
  return static_cast<T>(sum);
}

template <class T>
class LinearCombinationTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LinearCombinationTest, Types);

TYPED_TEST(LinearCombinationTest, SumsInOrderForAnyNumberOfInputs) {
  for (size_t count = 1; count <= 13; ++count) {
    const auto inputs = RandomInputs<TypeParam>(count, kSize);
    std::vector<double> coefficients;
    for (size_t k = 0; k < count; ++k) coefficients.push_back(0.1 + k);
    std::vector<TypeParam> out(kSize);
    LinearCombination(Pointers(inputs), coefficients, kSize, out.data());
    for (int64_t i = 0; i < kSize; ++i) {
      ASSERT_EQ(out[i], Expected(inputs, coefficients, i))
          << count << " inputs, element " << i;
    }
  }
}

TYPED_TEST(LinearCombinationTest, OutMayBeAnInput) {
  for (size_t count : {1, 2, 4, 5, 9}) {
    auto inputs = RandomInputs<TypeParam>(count, kSize);
    const std::vector<double> coefficients(count, 0.25);
    std::vector<TypeParam> out(kSize);
    LinearCombination(Pointers(inputs), coefficients, kSize, out.data());
    LinearCombination(Pointers(inputs), coefficients, kSize, inputs[0].data());
    EXPECT_EQ(inputs[0], out) << count;
  }
}

TYPED_TEST(LinearCombinationTest, AnySizeAndAlignment) {
  const auto inputs = RandomInputs<TypeParam>(3, 100);
  const std::vector<double> coefficients = {0.5, 0.25, 0.25};
  for (int64_t offset = 0; offset < 9; ++offset) {
    for (int64_t size = 0; size < 70; ++size) {
      std::vector<const TypeParam*> in;
      for (const auto& input : inputs) in.push_back(input.data() + offset);
      std::vector<TypeParam> out(size + 1, TypeParam{42});
      LinearCombination(in, coefficients, size, out.data());
      for (int64_t i = 0; i < size; ++i) {
        ASSERT_EQ(out[i], Expected(inputs, coefficients, offset + i));
      }
      ASSERT_EQ(out[size], TypeParam{42}) << "wrote past the end";
    }
  }
}

TYPED_TEST(LinearCombinationTest, TellsWhetherAllOfItIsFinite) {
  constexpr TypeParam kInfinity = std::numeric_limits<TypeParam>::infinity();
  constexpr TypeParam kNan = std::numeric_limits<TypeParam>::quiet_NaN();
  const std::vector<double> coefficients(5, 0.2);
  std::vector<TypeParam> out(kSize);
  auto inputs = RandomInputs<TypeParam>(5, kSize);
  EXPECT_TRUE(
      LinearCombination(Pointers(inputs), coefficients, kSize, out.data()));
  // In the first block, at the borders of blocks, in the last cache line.
  for (const int64_t i : {0, 17, 2047, 2048, 4095, 4096, 4990, 5002}) {
    for (const TypeParam bad : {kInfinity, -kInfinity, kNan}) {
      for (const size_t input : {0, 4}) {
        TypeParam& value = inputs[input][static_cast<size_t>(i)];
        const TypeParam before = std::exchange(value, bad);
        EXPECT_FALSE(LinearCombination(Pointers(inputs), coefficients, kSize,
                                       out.data()))
            << bad << " at " << i << " of input " << input;
        value = before;
      }
    }
  }
}

TYPED_TEST(LinearCombinationTest, TellsWhetherALargeResultIsFinite) {
  constexpr int64_t kLarge = (3 << 20) / sizeof(TypeParam) + 5;
  const auto inputs = RandomInputs<TypeParam>(2, kLarge);
  std::vector<TypeParam> out(kLarge);
  EXPECT_TRUE(
      LinearCombination(Pointers(inputs), {0.5, 0.5}, kLarge, out.data()));
  for (const int64_t i : {0, 9, 4999, 4998}) {
    ASSERT_EQ(out[kLarge - 1 - i],
              Expected(inputs, {0.5, 0.5}, kLarge - 1 - i));
  }
  // Finite inputs, and a sum that is too large.
  const TypeParam largest = std::numeric_limits<TypeParam>::max();
  auto larger = inputs;
  larger[0][kLarge - 1] = larger[1][kLarge - 1] = largest;
  EXPECT_FALSE(
      LinearCombination(Pointers(larger), {1.0, 1.0}, kLarge, out.data()));
}

// Results past the caches, at the beginning of a cache line and beside it.
TYPED_TEST(LinearCombinationTest, LargeResultsAreThoseOfSmallOnes) {
  constexpr int64_t kLarge = (1 << 20) / sizeof(TypeParam) + 21;
  constexpr size_t kLine = 64;
  std::vector<TypeParam> memory(kLarge + 2 * kLine);
  TypeParam* const line = reinterpret_cast<TypeParam*>(
      (reinterpret_cast<uintptr_t>(memory.data()) + kLine - 1) / kLine * kLine);
  for (const size_t count : {1, 2, 3, 4, 5, 8, 9}) {
    auto inputs = RandomInputs<TypeParam>(count, kLarge);
    std::vector<double> coefficients;
    for (size_t k = 0; k < count; ++k) coefficients.push_back(0.1 + k);
    for (TypeParam* const out : {line, line + 3}) {
      out[kLarge] = TypeParam{42};
      EXPECT_TRUE(
          LinearCombination(Pointers(inputs), coefficients, kLarge, out));
      for (int64_t i = 0; i < kLarge; ++i) {
        ASSERT_EQ(out[i], Expected(inputs, coefficients, i))
            << count << " inputs, element " << i;
      }
      ASSERT_EQ(out[kLarge], TypeParam{42}) << "wrote past the end";
      for (const int64_t i : {int64_t{0}, int64_t{15}, int64_t{70'007},
                              kLarge - 22, kLarge - 1}) {
        TypeParam& value = inputs[count - 1][static_cast<size_t>(i)];
        const TypeParam before =
            std::exchange(value, std::numeric_limits<TypeParam>::infinity());
        EXPECT_FALSE(
            LinearCombination(Pointers(inputs), coefficients, kLarge, out))
            << count << " inputs, element " << i;
        value = before;
      }
    }
  }
}

TEST(KernelsTest, EqualFloatsStayAsTheyAreForAnyNumberOfWorkers) {
  const auto values = RandomInputs<float>(1, kSize);
  for (size_t count = 1; count <= 40; ++count) {
    const std::vector<const float*> in(count, values[0].data());
    const std::vector<double> coefficients(count, 1.0 / count);
    std::vector<float> out(kSize);
    LinearCombination(in, coefficients, kSize, out.data());
    ASSERT_EQ(0, std::memcmp(out.data(), values[0].data(), 4 * kSize)) << count;
  }
}

TEST(KernelsTest, TheMeanOfTheLargestFloatsDoesNotOverflow) {
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> a(9, largest);
  std::vector<float> out(9);
  LinearCombination({a.data(), a.data()}, {0.5, 0.5}, 9, out.data());
  EXPECT_EQ(out, a);
}

template <class T>
void ExpectFinds(T bad) {
  for (int64_t size : {1, 7, 2048, 2049, 5003}) {
    std::vector<T> values(size, T{1});
    values[size / 2] = std::numeric_limits<T>::max();
    values[size - 1] = std::numeric_limits<T>::denorm_min();
    EXPECT_EQ(FirstNonFinite(values.data(), size), -1);
    for (int64_t at : {int64_t{0}, size / 2, size - 1}) {
      std::vector<T> with = values;
      with[at] = bad;
      with[size - 1] = bad;
      EXPECT_EQ(FirstNonFinite(with.data(), size), at) << size;
    }
  }
}

TEST(KernelsTest, FindsTheFirstValueThatIsNotFinite) {
  for (double bad : {INFINITY, -INFINITY, NAN, -NAN}) {
    ExpectFinds<float>(static_cast<float>(bad));
    ExpectFinds<double>(bad);
  }
  EXPECT_EQ(FirstNonFinite(static_cast<const float*>(nullptr), 0), -1);
}

}  // namespace
}  // namespace miniray::ps
