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

GanSizes Mlp(const ImageShape& shape) {
  return {.latent_dim = 100, .shape = shape};
}
GanSizes Dcgan(const ImageShape& shape, int64_t classes = 0) {
  return {.latent_dim = 100,
          .shape = shape,
          .architecture = GanArchitecture::kDcgan,
          .classes = classes};
}

Counts Count(GanNetwork network, const GanSizes& sizes) {
  Counts counts;
  for (const TensorSpec& spec : GanTensors(network, sizes)) {
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
  const Counts counts = Count(GanNetwork::kGenerator, Mlp(kCifar10));
  EXPECT_EQ(counts.parameters, 3835136);
  // Mean and variance a feature, one counter a layer.
  EXPECT_EQ(counts.buffers, 2 * (256 + 512 + 1024) + 3);
}

TEST(ArchitectureTest, DiscriminatorHasTheParametersOfTheTable) {
  const int64_t by_hand = (3072 * 1024 + 1024) + (1024 * 512 + 512) +
                          (512 * 256 + 256) + (256 * 1 + 1);
  EXPECT_EQ(by_hand, 3803137);
  const Counts counts = Count(GanNetwork::kDiscriminator, Mlp(kCifar10));
  EXPECT_EQ(counts.parameters, 3803137);
  EXPECT_EQ(counts.buffers, 0);
}

TEST(ArchitectureTest, SizesFollowTheImages) {
  EXPECT_EQ(Count(GanNetwork::kGenerator, Mlp(kFashionMnist)).parameters,
            3835136 - (1024 + 1) * (3072 - 784));
  EXPECT_EQ(Count(GanNetwork::kDiscriminator, Mlp(kFashionMnist)).parameters,
            3803137 - 1024 * (3072 - 784));
}

TEST(ArchitectureTest, NamesAreUniqueAndInTheOrderOfTheLayers) {
  for (const GanNetwork network : kGanNetworks) {
    for (const GanSizes& sizes : {Mlp(kCifar10), Dcgan(kCifar10, 10)}) {
      std::set<std::string> names;
      for (const TensorSpec& spec : GanTensors(network, sizes)) {
        EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
      }
    }
  }
  std::vector<std::string> names;
  for (const TensorSpec& spec :
       GanTensors(GanNetwork::kDiscriminator, Mlp(kCifar10))) {
    names.push_back(spec.name);
  }
  EXPECT_THAT(names,
              ElementsAre("layers.0.weight", "layers.0.bias", "layers.3.weight",
                          "layers.3.bias", "layers.6.weight", "layers.6.bias",
                          "layers.9.weight", "layers.9.bias"));
}

TEST(ArchitectureTest, DcganHalvesTheSideDownToFourToSeven) {
  const DcganStages of_64 = *DcganStagesFor({3, 64, 64});
  EXPECT_EQ(of_64.smallest, 4);
  EXPECT_THAT(of_64.widths, ElementsAre(64, 128, 256, 512));
  const DcganStages of_32 = *DcganStagesFor(kCifar10);
  EXPECT_EQ(of_32.smallest, 4);
  EXPECT_THAT(of_32.widths, ElementsAre(64, 128, 256));
  const DcganStages of_28 = *DcganStagesFor(kFashionMnist);
  EXPECT_EQ(of_28.smallest, 7);
  EXPECT_THAT(of_28.widths, ElementsAre(64, 128));
  EXPECT_EQ(of_28.features(), 128 * 7 * 7);
  // 96, 48, 24, 12, 6. No more than 512 channels, however large.
  EXPECT_EQ(DcganStagesFor({3, 96, 96})->smallest, 6);
  EXPECT_THAT(DcganStagesFor({3, 256, 256})->widths,
              ElementsAre(64, 128, 256, 512, 512, 512));
  EXPECT_THAT(DcganStagesFor({1, 8, 8})->widths, ElementsAre(64));
  EXPECT_EQ(DcganStagesFor({1, 10, 10})->smallest, 5);
}

TEST(ArchitectureTest, DcganRefusesSidesThatDoNotFitAndNamesSomeThatDo) {
  const auto error = [](const ImageShape& shape) {
    const absl::Status status = ValidateGanSizes(Dcgan(shape));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error({1, 28, 32}), HasSubstr("1x28x32; dcgan takes square"));
  // 30, 15: neither 4 to 7 nor even.
  EXPECT_THAT(error({3, 30, 30}), HasSubstr("nearest: 28 and 32:"));
  EXPECT_THAT(error({1, 9, 9}), HasSubstr("nearest: 8 and 10:"));
  EXPECT_THAT(error({1, 100, 100}), HasSubstr("nearest: 96 and 112:"));
  // Not doubled even once.
  for (const int64_t side : {1, 4, 7}) {
    EXPECT_THAT(error({1, side, side}), HasSubstr("nearest: 8:"));
  }
  EXPECT_EQ(ValidateGanSizes(Mlp({3, 30, 30})), absl::OkStatus());
}

TEST(ArchitectureTest, DcganHasTheParametersOfThePaperAtHalfItsWidths) {
  // 64 x 64: Linear 100 to 512 maps of 4 x 4, three transposed convolutions of
  // 4 x 4 without biases, one with; a scale and a shift for each normalised
  // channel.
  const int64_t generator = 100 * 512 * 16 + 2 * (512 + 256 + 128 + 64) +
                            16 * (512 * 256 + 256 * 128 + 128 * 64) +
                            (16 * 64 * 3 + 3);
  EXPECT_EQ(generator, 3576707);
  const Counts made = Count(GanNetwork::kGenerator, Dcgan({3, 64, 64}));
  EXPECT_EQ(made.parameters, generator);
  EXPECT_EQ(made.buffers, 2 * (512 + 256 + 128 + 64) + 4);
  // The way back, without BatchNorm in the first layer.
  const int64_t discriminator = (16 * 3 * 64 + 64) +
                                16 * (64 * 128 + 128 * 256 + 256 * 512) +
                                2 * (128 + 256 + 512) + (512 * 16 + 1);
  EXPECT_EQ(discriminator, 2765633);
  const Counts judged = Count(GanNetwork::kDiscriminator, Dcgan({3, 64, 64}));
  EXPECT_EQ(judged.parameters, discriminator);
  EXPECT_EQ(judged.buffers, 2 * (128 + 256 + 512) + 3);
}

TEST(ArchitectureTest, DcganOfFashionMnist) {
  EXPECT_EQ(Count(GanNetwork::kGenerator, Dcgan(kFashionMnist)).parameters,
            100 * 128 * 49 + 2 * (128 + 64) + 16 * 128 * 64 + (16 * 64 + 1));
  EXPECT_EQ(Count(GanNetwork::kDiscriminator, Dcgan(kFashionMnist)).parameters,
            (16 * 64 + 64) + 16 * 64 * 128 + 2 * 128 + (128 * 49 + 1));
}

TEST(ArchitectureTest, ClassesAddTwoEmbeddingsAndWidenTheFirstLayer) {
  GanSizes mlp = Mlp(kCifar10);
  mlp.classes = 10;
  EXPECT_EQ(Count(GanNetwork::kGenerator, mlp).parameters,
            3835136 + 10 * 32 + 32 * 256);
  EXPECT_EQ(Count(GanNetwork::kDiscriminator, mlp).parameters,
            3803137 + 10 * 256);
  EXPECT_EQ(GanTensors(GanNetwork::kGenerator, mlp)[0].name,
            "embedding.weight");
  // A dcgan's last layer sees 256 maps of 4 x 4.
  const GanSizes plain = Dcgan(kCifar10);
  const GanSizes dcgan = Dcgan(kCifar10, 10);
  EXPECT_EQ(
      Count(GanNetwork::kGenerator, dcgan).parameters,
      Count(GanNetwork::kGenerator, plain).parameters + 10 * 32 + 32 * 4096);
  EXPECT_EQ(Count(GanNetwork::kDiscriminator, dcgan).parameters,
            Count(GanNetwork::kDiscriminator, plain).parameters + 10 * 4096);
}

TEST(ArchitectureTest, DcganLayersAreNumberedWithThoseWithoutTensors) {
  std::vector<std::string> weights;
  for (const TensorSpec& spec :
       GanTensors(GanNetwork::kGenerator, Dcgan(kFashionMnist))) {
    if (spec.name.ends_with(".weight")) weights.push_back(spec.name);
  }
  // Linear, Unflatten, (BatchNorm, ReLU, convolution) twice, tanh.
  EXPECT_THAT(weights, ElementsAre("layers.0.weight", "layers.2.weight",
                                   "layers.4.weight", "layers.5.weight",
                                   "layers.7.weight"));
  EXPECT_EQ(GanLayerCount(GanNetwork::kGenerator, Dcgan(kFashionMnist)), 9);
  weights.clear();
  for (const TensorSpec& spec :
       GanTensors(GanNetwork::kDiscriminator, Dcgan(kFashionMnist))) {
    if (spec.name.ends_with(".weight")) weights.push_back(spec.name);
  }
  // Convolution, LeakyReLU, convolution, BatchNorm, LeakyReLU, Flatten, Linear.
  EXPECT_THAT(weights, ElementsAre("layers.0.weight", "layers.2.weight",
                                   "layers.3.weight", "layers.6.weight"));
  EXPECT_EQ(GanLayerCount(GanNetwork::kDiscriminator, Dcgan(kFashionMnist)), 7);
  EXPECT_EQ(GanLayerCount(GanNetwork::kGenerator, Mlp(kCifar10)), 11);
  EXPECT_EQ(GanLayerCount(GanNetwork::kDiscriminator, Mlp(kCifar10)), 10);
}

TEST(ArchitectureTest, NamesOfArchitectures) {
  EXPECT_EQ(*ParseGanArchitecture("mlp"), GanArchitecture::kMlp);
  EXPECT_EQ(*ParseGanArchitecture("dcgan"), GanArchitecture::kDcgan);
  EXPECT_THAT(std::string(ParseGanArchitecture("cnn").status().message()),
              HasSubstr("'cnn'; expected mlp or dcgan"));
}

TEST(ArchitectureTest, RefusesAnArchitectureThatThereIsNot) {
  for (const int number : {-1, 2, std::numeric_limits<int>::max()}) {
    GanSizes sizes = Mlp(kCifar10);
    sizes.architecture = static_cast<GanArchitecture>(number);
    const absl::Status status = ValidateGanSizes(sizes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), "the architecture is " +
                                                 std::to_string(number) +
                                                 "; expected mlp or dcgan");
  }
}

TEST(ArchitectureTest, RefusesSizesThatNoModelHas) {
  for (const int64_t classes :
       {int64_t{-1}, kMaxClasses + 1, std::numeric_limits<int64_t>::max()}) {
    GanSizes sizes = Mlp(kCifar10);
    sizes.classes = classes;
    EXPECT_THAT(std::string(ValidateGanSizes(sizes).message()),
                HasSubstr("classes; expected 0 to"));
  }

  EXPECT_TRUE(ValidateGanSizes(Mlp(kCifar10)).ok());
  EXPECT_TRUE(ValidateGanSizes({.latent_dim = 1, .shape = {1, 1, 1}}).ok());
  for (const int64_t latent_dim : {int64_t{0}, int64_t{-1}, kMaxLatentDim + 1,
                                   std::numeric_limits<int64_t>::max()}) {
    const absl::Status status =
        ValidateGanSizes({.latent_dim = latent_dim, .shape = kCifar10});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("latent_dim"));
  }
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const ImageShape& shape :
       {ImageShape{0, 28, 28}, ImageShape{2, 28, 28}, ImageShape{4, 28, 28},
        ImageShape{1, 0, 28}, ImageShape{1, 28, -1}, ImageShape{3, kHuge, 1},
        ImageShape{3, 1, kHuge}, ImageShape{3, kHuge, kHuge},
        ImageShape{1, 2048, 1024}}) {
    EXPECT_EQ(ValidateGanSizes(Mlp(shape)).code(),
              absl::StatusCode::kInvalidArgument)
        << shape.channels << " " << shape.height << " " << shape.width;
  }
}

}  // namespace
}  // namespace miniray::ml
