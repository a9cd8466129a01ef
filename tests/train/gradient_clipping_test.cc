#include "train/gradient_clipping.h"

#include <cmath>
#include <limits>

#include "ATen/ops/allclose.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/tensor.h"
#include "gtest/gtest.h"

namespace miniray::train {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(GradientClippingTest, NormIsThatOfAllTensorsAsOneVector) {
  // 1 + 4 + 4 + 16 = 25.
  EXPECT_NEAR(GradientNorm({at::tensor({1.0F, -2.0F}),
                            at::tensor({2.0F, 4.0F}).view({2, 1})}),
              5, 1e-6);
  EXPECT_EQ(GradientNorm({}), 0);
  EXPECT_TRUE(std::isnan(GradientNorm({at::tensor({1.0F, std::nanf("")})})));
}

TEST(GradientClippingTest, ByNormShrinksAllAlike) {
  const at::Tensor a = at::tensor({3.0F});
  const at::Tensor b = at::tensor({4.0F});
  EXPECT_EQ(ClipByNorm({a, b}, 1), 5);
  EXPECT_TRUE(at::allclose(a, at::tensor({0.6F})));
  EXPECT_TRUE(at::allclose(b, at::tensor({0.8F})));
}

TEST(GradientClippingTest, ByNormLeavesSmallGradientsToTheBit) {
  const at::Tensor a = at::tensor({3.0F, 4.0F});
  EXPECT_EQ(ClipByNorm({a}, 5.1), 5);
  EXPECT_TRUE(at::equal(a, at::tensor({3.0F, 4.0F})));
}

TEST(GradientClippingTest, ByNormLeavesWhatIsNotFinite) {
  const at::Tensor a = at::tensor({3.0F, kInfinity});
  EXPECT_FALSE(std::isfinite(ClipByNorm({a}, 1)));
  EXPECT_TRUE(at::equal(a, at::tensor({3.0F, kInfinity})));
}

TEST(GradientClippingTest, ByValue) {
  const at::Tensor a = at::tensor({-3.0F, 0.25F, 4.0F});
  ClipByValue({a}, 0.5);
  EXPECT_TRUE(at::equal(a, at::tensor({-0.5F, 0.25F, 0.5F})));
}

TEST(GradientClippingTest, FindsWhatIsNotFinite) {
  EXPECT_TRUE(AllFinite({at::tensor({1.0F}), at::tensor({-2.0F})}));
  EXPECT_FALSE(AllFinite({at::tensor({1.0F}), at::tensor({0.0F, -kInfinity})}));
  EXPECT_FALSE(AllFinite({at::tensor({std::nanf("")})}));
}

}  // namespace
}  // namespace miniray::train
