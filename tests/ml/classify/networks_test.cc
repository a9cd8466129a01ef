#include "ml/classify/networks.h"

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;
using ::testing::ElementsAre;

int64_t NumParameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    count += parameter.numel();
  }
  return count;
}

TEST(NetworksTest, HaveTheParametersThatOneCounts) {
  const NetworkSize cifar = {.channels = 3, .height = 32, .width = 32};
  ASSERT_OK_AND_ASSIGN(const auto mlp, MakeClassifierNetwork("mlp", cifar, 1));
  EXPECT_EQ(NumParameters(*mlp), 3072 * 64 + 64 + 64 * 10 + 10);
  ASSERT_OK_AND_ASSIGN(const auto cnn, MakeClassifierNetwork("cnn", cifar, 1));
  EXPECT_EQ(NumParameters(*cnn),
            (27 * 32 + 32) + (288 * 64 + 64) + (4096 * 64 + 64) + 64 * 10 + 10);
  // As the paper's 0.27 million.
  ASSERT_OK_AND_ASSIGN(const auto resnet,
                       MakeClassifierNetwork("resnet20", cifar, 1));
  EXPECT_EQ(NumParameters(*resnet), 269722);
}

TEST(NetworksTest, TakeImagesOfAnySize) {
  const torch::NoGradGuard no_grad;
  for (const std::string& name : ClassifierNetworkNames()) {
    for (const auto& [height, width] :
         {std::pair<int64_t, int64_t>{28, 28}, {33, 17}, {4, 4}}) {
      ASSERT_OK_AND_ASSIGN(
          const auto network,
          MakeClassifierNetwork(
              name,
              {.channels = 2, .height = height, .width = width, .classes = 7},
              1));
      EXPECT_THAT(network->Forward(at::rand({5, 2, height, width})).sizes(),
                  ElementsAre(5, 7))
          << name;
    }
  }
}

TEST(NetworksTest, FeaturesAreWhatTheLastLayerSees) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, features] :
       {std::pair<std::string, int64_t>{"mlp", 24},
        {"cnn", 24},
        {"resnet20", 64}}) {
    ASSERT_OK_AND_ASSIGN(
        const auto network,
        MakeClassifierNetwork(name, {.classes = 7, .hidden = 24}, 1));
    network->eval();
    const at::Tensor x = at::rand({5, 1, 28, 28});
    const at::Tensor seen = network->Features(x);
    EXPECT_THAT(seen.sizes(), ElementsAre(5, features)) << name;
    const auto parameters = network->named_parameters();
    const at::Tensor logits = seen.matmul(parameters["output.weight"].t()) +
                              parameters["output.bias"];
    EXPECT_TRUE(at::allclose(network->Forward(x), logits, 1e-4, 1e-5)) << name;
  }
}

TEST(NetworksTest, TheSeedAloneDecides) {
  for (const std::string& name : ClassifierNetworkNames()) {
    const auto first = [&name](uint64_t seed) {
      return (*MakeClassifierNetwork(name, {}, seed))->parameters()[0];
    };
    at::manual_seed(1);
    const at::Tensor one = first(1);
    at::manual_seed(2);
    EXPECT_TRUE(at::equal(first(1), one)) << name;
    EXPECT_FALSE(at::equal(first(2), one)) << name;
  }
}

TEST(NetworksTest, ABlockWithoutWeightsIsItsShortcut) {
  const NetworkSize size = {.channels = 3, .height = 8, .width = 8};
  ASSERT_OK_AND_ASSIGN(const auto network,
                       MakeClassifierNetwork("resnet20", size, 1));
  network->eval();
  const torch::NoGradGuard no_grad;
  for (const auto& item : network->named_parameters()) {
    if (item.key().rfind("block", 0) == 0) item.value().zero_();
  }
  // What the first convolution makes passes all blocks: every second pixel of
  // every second pixel, in channels 24 to 39 of 64, where the padding puts it.
  const at::Tensor x = at::rand({1, 3, 8, 8});
  const auto parameters = network->named_parameters();
  const at::Tensor begun =
      at::relu(at::conv2d(x, parameters["first.weight"], {}, 1, 1));
  const at::Tensor kept = begun.slice(2, 0, 8, 4).slice(3, 0, 8, 4);
  const at::Tensor expected =
      kept.mean({2, 3}).matmul(
          parameters["output.weight"].slice(1, 24, 40).t()) +
      parameters["output.bias"];
  EXPECT_TRUE(at::allclose(network->Forward(x), expected, 1e-4, 1e-5));
}

TEST(NetworksTest, RefuseWhatCannotBe) {
  ExpectError(MakeClassifierNetwork("vgg", {}, 1).status(), kInvalidArgument,
              {"'vgg'", "mlp, cnn, resnet20"});
  ExpectError(MakeClassifierNetwork("mlp", {.classes = 0}, 1).status(),
              kInvalidArgument, {"at least one"});
  ExpectError(MakeClassifierNetwork("cnn", {.height = 3}, 1).status(),
              kInvalidArgument, {"at least 4 x 4", "3 x 28"});
}

}  // namespace
}  // namespace miniray::ml
