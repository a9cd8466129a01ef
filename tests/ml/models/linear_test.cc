#include "ml/models/linear.h"

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/ops/empty.h"
#include "gtest/gtest.h"
#include "torch/utils.h"

namespace miniray::ml {
namespace {

at::Generator Random(uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

TEST(MakeLinearTest, DrawsWeightsAndThenBiasesWithinTheBound) {
  at::Generator random = Random(3);
  const torch::nn::Linear linear = MakeLinear(16, 40, random);
  at::Generator same = Random(3);
  const at::Tensor weight = at::empty({40, 16}).uniform_(-0.25, 0.25, same);
  const at::Tensor bias = at::empty({40}).uniform_(-0.25, 0.25, same);
  EXPECT_TRUE(linear->weight.equal(weight));
  EXPECT_TRUE(linear->bias.equal(bias));
  EXPECT_TRUE(linear->weight.requires_grad());
  EXPECT_TRUE(linear->bias.requires_grad());
}

TEST(MakeLinearTest, DependsOnTheGeneratorAlone) {
  at::Generator random = Random(3);
  torch::manual_seed(1);
  const torch::nn::Linear one = MakeLinear(4, 5, random);
  // The next layer is another one.
  const torch::nn::Linear next = MakeLinear(4, 5, random);
  at::Generator same = Random(3);
  torch::manual_seed(2);
  const torch::nn::Linear again = MakeLinear(4, 5, same);
  EXPECT_TRUE(one->weight.equal(again->weight));
  EXPECT_TRUE(one->bias.equal(again->bias));
  EXPECT_FALSE(one->weight.equal(next->weight));
}

}  // namespace
}  // namespace miniray::ml
