#include "train/mixed_precision.h"

#include <stdexcept>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::train {
namespace {

using ::testing::HasSubstr;

const c10::Device kCpu(c10::kCPU);

// The type in which a matrix product computes now.
c10::ScalarType ProductType() {
  return at::linear(at::ones({1, 2}), at::ones({1, 2})).scalar_type();
}

TEST(AutocastTest, ComputesInBfloat16WithinTheScopeOnly) {
  EXPECT_EQ(ProductType(), at::kFloat);
  {
    const Autocast autocast(Precision::kBfloat16, kCpu);
    EXPECT_EQ(ProductType(), at::kBFloat16);
    {
      const Autocast off(Precision::kFloat32, kCpu);
      EXPECT_EQ(ProductType(), at::kFloat);
    }
    EXPECT_EQ(ProductType(), at::kBFloat16);
  }
  EXPECT_EQ(ProductType(), at::kFloat);
}

TEST(AutocastTest, EndsWithAnException) {
  try {
    const Autocast autocast(Precision::kBfloat16, kCpu);
    throw std::runtime_error("no more data");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(ProductType(), at::kFloat);
}

TEST(AutocastTest, RoundsToSevenBits) {
  const at::Tensor x = at::full({1, 1}, 1 + 0x1p-7 + 0x1p-12);
  const Autocast autocast(Precision::kBfloat16, kCpu);
  EXPECT_EQ(at::linear(x, at::ones({1, 1})).item<double>(), 1 + 0x1p-7);
}

// A weight's copy in 16 bits is kept within a scope, and would be the old
// weight's in the next.
TEST(AutocastTest, NextScopeSeesNewWeights) {
  const at::Tensor weight = at::ones({1, 2}).set_requires_grad(true);
  const auto product = [&] {
    const Autocast autocast(Precision::kBfloat16, kCpu);
    return at::linear(at::ones({1, 2}), weight).item<double>();
  };
  EXPECT_EQ(product(), 2);
  {
    const at::NoGradGuard no_grad;
    weight.mul_(3);
  }
  EXPECT_EQ(product(), 6);
}

TEST(AutocastTest, RefusesWhatADeviceCannot) {
  EXPECT_TRUE(CheckPrecision(Precision::kFloat32, kCpu).ok());
  EXPECT_TRUE(CheckPrecision(Precision::kBfloat16, kCpu).ok());
  EXPECT_TRUE(
      CheckPrecision(Precision::kFloat16, c10::Device(c10::kCUDA, 0)).ok());
  const absl::Status status = CheckPrecision(Precision::kFloat16, kCpu);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("bfloat16 works on the CPU"));
}

}  // namespace
}  // namespace miniray::train
