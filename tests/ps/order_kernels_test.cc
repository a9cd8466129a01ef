#include "ps/order_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace miniray::ps {
namespace {

// Neither a multiple of the vector width nor of a row nor of a block.
constexpr int64_t kSize = 5003;
// More than what is sorted in registers.
constexpr size_t kMostInputs = 21;

template <class T>
std::vector<std::vector<T>> RandomInputs(size_t count, int64_t size) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<std::vector<T>> inputs(count);
  for (auto& input : inputs) {
    for (int64_t i = 0; i < size; ++i) {
      // Some equal values, too.
      const double value = uniform(generator);
      input.push_back(
          static_cast<T>(i % 5 == 0 ? std::round(value * 2) : value));
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

template <class T>
std::vector<T> Sorted(const std::vector<std::vector<T>>& inputs, int64_t i) {
  std::vector<T> values;
  for (const auto& input : inputs) {
    values.push_back(std::isnan(input[i]) ? T{INFINITY} : input[i]);
  }
  std::sort(values.begin(), values.end());
  return values;
}

// The definition, one element at a time.
template <class T>
T Trimmed(const std::vector<std::vector<T>>& inputs, size_t cut, int64_t i) {
  const std::vector<T> values = Sorted(inputs, i);
  double sum = 0;
  for (size_t k = cut; k < values.size() - cut; ++k) {
    sum += static_cast<double>(values[k]);
  }
  return static_cast<T>(sum *
                        (1.0 / static_cast<double>(values.size() - 2 * cut)));
}

template <class T>
class OrderKernelsTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(OrderKernelsTest, Types);

TYPED_TEST(OrderKernelsTest, TrimsEveryNumberOfInputs) {
  for (size_t count = 1; count <= kMostInputs; ++count) {
    const auto inputs = RandomInputs<TypeParam>(count, kSize);
    for (size_t cut = 0; 2 * cut < count; ++cut) {
      std::vector<TypeParam> out(kSize);
      TrimmedMean(Pointers(inputs), cut, kSize, out.data());
      for (int64_t i = 0; i < kSize; ++i) {
        ASSERT_EQ(out[i], Trimmed(inputs, cut, i))
            << count << " inputs, cut " << cut << ", element " << i;
      }
    }
  }
}

TYPED_TEST(OrderKernelsTest, AnySizeAndAlignment) {
  const auto inputs = RandomInputs<TypeParam>(5, 100);
  for (int64_t offset = 0; offset < 9; ++offset) {
    for (int64_t size = 0; size < 70; ++size) {
      std::vector<const TypeParam*> in;
      for (const auto& input : inputs) in.push_back(input.data() + offset);
      std::vector<TypeParam> out(size + 1, TypeParam{42});
      TrimmedMean(in, 2, size, out.data());
      for (int64_t i = 0; i < size; ++i) {
        ASSERT_EQ(out[i], Trimmed(inputs, 2, offset + i));
      }
      ASSERT_EQ(out[size], TypeParam{42}) << "wrote past the end";
    }
  }
}

// Up to `cut` broken inputs a side leave no trace, wherever they stand.
TYPED_TEST(OrderKernelsTest, NaNCountsAsTheLargest) {
  for (size_t count : {3, 4, 5, 8, 16, 17}) {
    const size_t cut = (count - 1) / 2;
    auto inputs = RandomInputs<TypeParam>(count, kSize);
    for (int64_t i = 0; i < kSize; ++i) {
      for (size_t b = 0; b < cut; ++b) {
        const TypeParam bad[] = {NAN, INFINITY, -NAN};
        inputs[(i + b) % count][i] = bad[b % 3];
      }
    }
    std::vector<TypeParam> out(kSize);
    TrimmedMean(Pointers(inputs), cut, kSize, out.data());
    for (int64_t i = 0; i < kSize; ++i) {
      ASSERT_TRUE(std::isfinite(out[i])) << count << " inputs, element " << i;
      ASSERT_EQ(out[i], Trimmed(inputs, cut, i));
    }
  }
}

TYPED_TEST(OrderKernelsTest, TheMeanOfTheLargestValuesDoesNotOverflow) {
  const std::vector<TypeParam> largest(
      9, std::numeric_limits<TypeParam>::max() / 2);
  std::vector<TypeParam> out(9);
  TrimmedMean({largest.data(), largest.data()}, 0, 9, out.data());
  EXPECT_EQ(out, largest);
}

TEST(OrderKernelsTest, EqualFloatsStayAsTheyAre) {
  const auto values = RandomInputs<float>(1, kSize);
  for (size_t count = 1; count <= kMostInputs; ++count) {
    const std::vector<const float*> in(count, values[0].data());
    std::vector<float> out(kSize);
    for (size_t cut = 0; 2 * cut < count; ++cut) {
      TrimmedMean(in, cut, kSize, out.data());
      ASSERT_EQ(0, std::memcmp(out.data(), values[0].data(), 4 * kSize))
          << count << " " << cut;
    }
    for (size_t keep = 1; keep <= count; ++keep) {
      MeanAroundMedian(in, keep, kSize, out.data());
      ASSERT_EQ(0, std::memcmp(out.data(), values[0].data(), 4 * kSize))
          << count << " " << keep;
    }
  }
}

TYPED_TEST(OrderKernelsTest, KeepsWhatIsClosestToTheMedian) {
  for (size_t count = 1; count <= kMostInputs; count += 2) {
    auto inputs = RandomInputs<TypeParam>(count, kSize);
    inputs[0][17] = NAN;
    for (size_t keep = 1; keep <= count; ++keep) {
      if (count == 1 || keep == count) inputs[0][17] = 0;
      std::vector<TypeParam> out(kSize);
      MeanAroundMedian(Pointers(inputs), keep, kSize, out.data());
      for (int64_t i = 0; i < kSize; ++i) {
        std::vector<TypeParam> values = Sorted(inputs, i);
        const double median = values[count / 2];
        std::stable_sort(values.begin(), values.end(), [&](double a, double b) {
          return std::fabs(a - median) < std::fabs(b - median);
        });
        values.resize(keep);
        std::sort(values.begin(), values.end());
        double sum = 0;
        for (const TypeParam value : values) sum += value;
        ASSERT_EQ(out[i], static_cast<TypeParam>(
                              sum * (1.0 / static_cast<double>(keep))))
            << count << " inputs, keep " << keep << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace miniray::ps
