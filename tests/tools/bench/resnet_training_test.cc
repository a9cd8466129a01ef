#include "tools/bench/resnet_training.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "torch/types.h"
#include "torch/utils.h"

namespace miniray::bench {
namespace {

TEST(ResNet20Test, HasTheLayersAndParametersOfThePaper) {
  ResNet20 network;
  int64_t parameters = 0;
  int convolutions = 0;
  for (const at::Tensor& parameter : network->parameters()) {
    parameters += parameter.numel();
    convolutions += parameter.dim() == 4 ? 1 : 0;
  }
  EXPECT_EQ(parameters, 269'722);
  EXPECT_EQ(convolutions, 19);  // The 20th layer is linear.
  EXPECT_EQ(network(torch::randn({2, 3, 32, 32})).sizes(),
            at::IntArrayRef({2, 10}));
}

TEST(ResNet20Test, AShortcutTakesEverySecondPixelAndNewChannelsAreZero) {
  ResidualBlock block(/*channels_in=*/2, /*channels=*/4);
  block.eval();
  const torch::NoGradGuard no_grad;
  block.second_norm->weight.zero_();  // The shortcut alone.
  const at::Tensor x = torch::rand({1, 2, 4, 4});
  const at::Tensor y = block.Forward(x);
  ASSERT_EQ(y.sizes(), at::IntArrayRef({1, 4, 2, 2}));
  for (int channel = 0; channel < 4; ++channel) {
    for (int row = 0; row < 2; ++row) {
      for (int column = 0; column < 2; ++column) {
        const bool is_new = channel == 0 || channel == 3;
        const float expected =
            is_new ? 0 : x[0][channel - 1][2 * row][2 * column].item<float>();
        EXPECT_EQ(y[0][channel][row][column].item<float>(), expected);
      }
    }
  }
}

TEST(ResNetTrainingTest, LearnsItsBatchesAndShardsHaveTheirOwn) {
  torch::manual_seed(1);
  ResNetTraining training(ResNet20(), /*shard=*/0, /*batch_size=*/4);
  training.Train(8);  // Each of its batches once.
  const double first = training.loss();
  const double before = training.SumOfWeights();
  EXPECT_GT(training.Train(10 * 8), 0);
  EXPECT_LT(training.loss(), 0.7 * first);
  EXPECT_NE(training.SumOfWeights(), before);

  torch::manual_seed(1);
  ResNetTraining other(ResNet20(), /*shard=*/1, /*batch_size=*/4);
  other.Train(8);
  EXPECT_NE(other.loss(), first);
}

}  // namespace
}  // namespace miniray::bench
