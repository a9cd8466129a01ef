#include "ml/gan/architecture.h"

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ImageShape kCifar10 = {3, 32, 32};
constexpr ImageShape kFashionMnist = {1, 28, 28};

struct Counts {
  int64_t parameters = 0;
  int64_t buffers = 0;
};

Counts Count(GanNetwork network, const ImageShape& shape) {
  Counts counts;
  for (const TensorSpec& spec : GanTensors(network, 100, shape)) {
    int64_t values = 1;
    for (const int64_t size : spec.sizes) values *= size;
    (spec.is_buffer ? counts.buffers : counts.parameters) += values;
  }
  return counts;
}

TEST(ArchitectureTest, GeneratorHasTheParametersOfTheTable) {
  // Linear 100-256, 256-512, 512-1024, 1024-3072 with biases, and a scale and a
  // shift for each of 256 + 512 + 1024 normalised features.
  const int64_t by_hand = (100 * 256 + 256) + 2 * 256 + (256 * 512 + 512) +
                          2 * 512 + (512 * 1024 + 1024) + 2 * 1024 +
                          (1024 * 3072 + 3072);
  EXPECT_EQ(by_hand, 3835136);
  const Counts counts = Count(GanNetwork::kGenerator, kCifar10);
  EXPECT_EQ(counts.parameters, 3835136);
  // Mean and variance a feature, one counter a layer.
  EXPECT_EQ(counts.buffers, 2 * (256 + 512 + 1024) + 3);
}

TEST(ArchitectureTest, DiscriminatorHasTheParametersOfTheTable) {
  const int64_t by_hand = (3072 * 1024 + 1024) + (1024 * 512 + 512) +
                          (512 * 256 + 256) + (256 * 1 + 1);
  EXPECT_EQ(by_hand, 3803137);
  const Counts counts = Count(GanNetwork::kDiscriminator, kCifar10);
  EXPECT_EQ(counts.parameters, 3803137);
  EXPECT_EQ(counts.buffers, 0);
}

TEST(ArchitectureTest, SizesFollowTheImages) {
  EXPECT_EQ(Count(GanNetwork::kGenerator, kFashionMnist).parameters,
            3835136 - (1024 + 1) * (3072 - 784));
  EXPECT_EQ(Count(GanNetwork::kDiscriminator, kFashionMnist).parameters,
            3803137 - 1024 * (3072 - 784));
}

TEST(ArchitectureTest, NamesAreUniqueAndInTheOrderOfTheLayers) {
  for (const GanNetwork network : kGanNetworks) {
    std::set<std::string> names;
    for (const TensorSpec& spec : GanTensors(network, 100, kCifar10)) {
      EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    }
  }
  std::vector<std::string> names;
  for (const TensorSpec& spec :
       GanTensors(GanNetwork::kDiscriminator, 100, kCifar10)) {
    names.push_back(spec.name);
  }
  EXPECT_THAT(names,
              ElementsAre("layers.0.weight", "layers.0.bias", "layers.3.weight",
                          "layers.3.bias", "layers.6.weight", "layers.6.bias",
                          "layers.9.weight", "layers.9.bias"));
}

TEST(ArchitectureTest, RefusesSizesThatNoModelHas) {
  EXPECT_TRUE(ValidateGanSizes(100, kCifar10).ok());
  EXPECT_TRUE(ValidateGanSizes(1, {1, 1, 1}).ok());
  for (const int64_t latent_dim : {int64_t{0}, int64_t{-1}, kMaxLatentDim + 1,
                                   std::numeric_limits<int64_t>::max()}) {
    const absl::Status status = ValidateGanSizes(latent_dim, kCifar10);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("latent_dim"));
  }
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const ImageShape& shape :
       {ImageShape{0, 28, 28}, ImageShape{2, 28, 28}, ImageShape{4, 28, 28},
        ImageShape{1, 0, 28}, ImageShape{1, 28, -1}, ImageShape{3, kHuge, 1},
        ImageShape{3, 1, kHuge}, ImageShape{3, kHuge, kHuge},
        ImageShape{1, 2048, 1024}}) {
    EXPECT_EQ(ValidateGanSizes(100, shape).code(),
              absl::StatusCode::kInvalidArgument)
        << shape.channels << " " << shape.height << " " << shape.width;
  }
}

}  // namespace
}  // namespace miniray::ml
