#include "ml/data/augment.h"

#include <map>

#include "ATen/ATen.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

TEST(AugmentTest, EveryImageIsAMirroredAndMovedOne) {
  // One image, often: all 2 * 3 * 3 outcomes are seen about equally often.
  const at::Tensor image = at::arange(1, 13).view({1, 1, 3, 4}).to(at::kByte);
  const int64_t kCount = 3600;
  const at::Tensor results =
      FlipAndShift(image.expand({kCount, 1, 3, 4}), 1, 7);
  std::map<std::string, int> seen;
  for (int64_t i = 0; i < kCount; ++i) {
    seen[std::string(
        reinterpret_cast<const char*>(results[i].contiguous().data_ptr()),
        12)]++;
  }
  EXPECT_EQ(seen.size(), 18);
  for (const auto& [result, count] : seen) {
    EXPECT_NEAR(count, 200, 70);  // Five standard deviations.
  }
  const auto bytes = [](std::initializer_list<int> values) {
    return std::string(values.begin(), values.end());
  };
  EXPECT_TRUE(seen.contains(bytes({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})));
  EXPECT_TRUE(seen.contains(bytes({4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9})));
  // Down and to the right.
  EXPECT_TRUE(seen.contains(bytes({0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7})));
  // Mirrored, up and to the left.
  EXPECT_TRUE(seen.contains(bytes({7, 6, 5, 0, 11, 10, 9, 0, 0, 0, 0, 0})));
}

TEST(AugmentTest, TheSeedDecides) {
  const at::Tensor images = at::randint(0, 256, {20, 3, 8, 8}).to(at::kByte);
  const at::Tensor before = images.clone();
  const at::Tensor one = FlipAndShift(images, 4, 1);
  EXPECT_TRUE(at::equal(FlipAndShift(images, 4, 1), one));
  EXPECT_FALSE(at::equal(FlipAndShift(images, 4, 2), one));
  EXPECT_TRUE(at::equal(images, before));
}

TEST(AugmentTest, WithoutAShiftTheyAreOnlyMirrored) {
  const at::Tensor images = at::randint(0, 256, {50, 1, 2, 5}).to(at::kByte);
  const at::Tensor results = FlipAndShift(images, 0, 3);
  int mirrored = 0;
  for (int64_t i = 0; i < 50; ++i) {
    const bool same = at::equal(results[i], images[i]);
    mirrored += !same;
    EXPECT_TRUE(same || at::equal(results[i], images[i].flip({2})));
  }
  EXPECT_GT(mirrored, 5);
  EXPECT_LT(mirrored, 45);
}

TEST(AugmentTest, AnImageMayBeMovedOut) {
  const at::Tensor image = at::full({30, 1, 1, 1}, 9, at::kByte);
  const at::Tensor results = FlipAndShift(image, 5, 3);
  EXPECT_GT(results.eq(0).sum().item<int>(), 0);
}

}  // namespace
}  // namespace miniray::ml
