#include "train/loss_scaler.h"

#include <limits>

#include "ATen/ops/equal.h"
#include "ATen/ops/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::train {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(LossScalerTest, UnscaleDividesByScaleAndDivisor) {
  const LossScaler scaler({.initial_scale = 8});
  const at::Tensor gradient = at::tensor({16.0F, -4.0F});
  EXPECT_TRUE(scaler.Unscale({gradient}));
  EXPECT_TRUE(at::equal(gradient, at::tensor({2.0F, -0.5F})));
  EXPECT_TRUE(scaler.Unscale({gradient}, 2));
  EXPECT_TRUE(at::equal(gradient, at::tensor({0.125F, -0.03125F})));
}

TEST(LossScalerTest, UnscaleFindsAnOverflowAnywhere) {
  const LossScaler scaler({.initial_scale = 8});
  const at::Tensor fine = at::tensor({16.0F});
  EXPECT_FALSE(scaler.Unscale({fine, at::tensor({1.0F, kInfinity})}));
  EXPECT_TRUE(at::equal(fine, at::tensor({16.0F})));
}

TEST(LossScalerTest, GrowsAfterGoodStepsInARow) {
  LossScaler scaler({.initial_scale = 4, .growth_interval = 3});
  scaler.Update(true);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 4);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 8);
  scaler.Update(true);
  scaler.Update(true);
  scaler.Update(false);  // The count begins anew.
  EXPECT_EQ(scaler.scale(), 4);
  scaler.Update(true);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 4);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(LossScalerTest, StaysWithinItsLimits) {
  LossScaler low({.initial_scale = 4, .min_scale = 2});
  EXPECT_FALSE(low.AtMinimum());
  for (int i = 0; i < 3; ++i) low.Update(false);
  EXPECT_EQ(low.scale(), 2);
  EXPECT_TRUE(low.AtMinimum());

  const double high = 0x1p127;  // The next is beyond float32.
  LossScaler top({.initial_scale = high, .growth_interval = 1});
  top.Update(true);
  EXPECT_EQ(top.scale(), high);
}

TEST(LossScalerTest, StateGoesOn) {
  LossScaler first({.initial_scale = 4, .growth_interval = 2});
  first.Update(true);
  LossScaler second({.initial_scale = 16, .growth_interval = 2});
  second.set_state(first.state());
  EXPECT_EQ(second.scale(), 4);
  second.Update(true);
  EXPECT_EQ(second.scale(), 8);
}

TEST(LossScalerTest, RefusesWhatCannotBe) {
  const std::pair<LossScalerOptions, const char*> cases[] = {
      {{.initial_scale = 0.5}, "initial_scale is 0.5; expected at least"},
      {{.growth_factor = 1}, "growth_factor is 1"},
      {{.backoff_factor = 1}, "backoff_factor is 1"},
      {{.growth_interval = 0}, "growth_interval is 0"},
      {{.min_scale = 0}, "min_scale is 0"},
  };
  for (const auto& [options, message] : cases) {
    EXPECT_THAT(Validate(options).message(), HasSubstr(message));
  }
  EXPECT_TRUE(Validate(LossScalerOptions()).ok());
}

}  // namespace
}  // namespace miniray::train
