#include "ml/gan/image_generator.h"

#include <cmath>
#include <string>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/equal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/gan/gan_testutil.h"

namespace miniray::ml {
namespace {

TEST(GeneratorNoiseTest, IsStandardNormal) {
  const at::Tensor noise = GeneratorNoise(5, 0, 2000, 101);
  EXPECT_EQ(noise.sizes(), at::IntArrayRef({2000, 101}));
  const double count = 2000.0 * 101.0;
  EXPECT_NEAR(noise.mean().item<double>(), 0, 5 / std::sqrt(count));
  EXPECT_NEAR(noise.var().item<double>(), 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(noise.pow(3).mean().item<double>(), 0, 5 * std::sqrt(15 / count));
  EXPECT_NEAR(noise.pow(4).mean().item<double>(), 3, 5 * std::sqrt(96 / count));
  EXPECT_GT(noise.abs().max().item<double>(), 4);
}

TEST(GeneratorNoiseTest, RowDependsOnSeedAndIndexOnly) {
  const at::Tensor all = GeneratorNoise(5, 0, 20, 7);
  EXPECT_TRUE(all.slice(0, 13, 17).equal(GeneratorNoise(5, 13, 4, 7)));
  EXPECT_FALSE(all[0].equal(all[1]));
  EXPECT_FALSE(all.equal(GeneratorNoise(6, 0, 20, 7)));
  // Neighbouring seeds are no shifted copies of each other.
  EXPECT_FALSE(all[1].equal(GeneratorNoise(6, 0, 1, 7)[0]));
}

TEST(ImageGeneratorTest, ImagesAreInRangeAndDiffer) {
  auto generator = *ImageGenerator::Create(SmallGenerator());
  const at::Tensor images = generator->Generate(1, 0, 10);
  EXPECT_EQ(images.sizes(), at::IntArrayRef({10, 1, 8, 8}));
  EXPECT_LE(images.abs().max().item<double>(), 1);
  EXPECT_FALSE(images[0].equal(images[1]));
  EXPECT_FALSE(images.equal(generator->Generate(2, 0, 10)));
  EXPECT_FALSE(images.requires_grad());
}

TEST(ImageGeneratorTest, PiecesGiveTheSameImagesAsTheWhole) {
  const GanModel model = SmallGenerator();
  const int64_t count = 200;
  const at::Tensor whole =
      (*ImageGenerator::Create(model))->Generate(3, 0, count);
  for (const int64_t pieces : {1, 2, 3, 4, 200}) {
    std::vector<at::Tensor> parts;
    auto generator = *ImageGenerator::Create(model);
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t begin = count * i / pieces;
      const int64_t end = count * (i + 1) / pieces;
      parts.push_back(generator->Generate(3, begin, end - begin));
    }
    EXPECT_TRUE(at::cat(parts).equal(whole)) << pieces;
  }
}

TEST(ImageGeneratorTest, NoImagesIsFine) {
  auto generator = *ImageGenerator::Create(SmallGenerator());
  EXPECT_EQ(generator->Generate(3, 70, 0).size(0), 0);
}

TEST(ImageGeneratorTest, UsesTheTrainedStatistics) {
  auto gan = *Gan::Create(SmallGanOptions());
  gan->BeginEpoch(0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(gan->TrainStep(SmallImages(16, i)), absl::OkStatus());
  }
  GanModel model = SmallGenerator();
  model.weights = Copy(gan->NetworkWeights(GanNetwork::kGenerator));
  const at::Tensor images = (*ImageGenerator::Create(model))->Generate(1, 0, 4);
  for (auto& [name, tensor] : model.weights) {
    if (name == "layers.2.running_mean") tensor.add_(1.0);
  }
  EXPECT_FALSE(
      images.equal((*ImageGenerator::Create(model))->Generate(1, 0, 4)));
}

TEST(ImageGeneratorTest, LeavesTheRandomNumbersOfLibTorchAlone) {
  const GanModel model = SmallGenerator();
  const at::Generator random = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = random.get_state();
  auto generator = *ImageGenerator::Create(model);
  EXPECT_EQ(generator->Generate(1, 0, 4).size(0), 4);
  EXPECT_TRUE(before.equal(random.get_state()));
}

TEST(ImageGeneratorTest, LargeImagesOfADcganComeInSmallerBlocks) {
  const auto block = [](GanArchitecture architecture, int64_t side) {
    const GanSizes sizes = {.latent_dim = 1,
                            .shape = {1, side, side},
                            .architecture = architecture};
    EXPECT_EQ(ValidateGanSizes(sizes), absl::OkStatus()) << side;
    return ImageGenerator::BlockSize(sizes);
  };
  // 2^20 pixels: 64 images of 128 x 128, 40 of 160 x 160, ...
  EXPECT_EQ(block(GanArchitecture::kDcgan, 28), 64);
  EXPECT_EQ(block(GanArchitecture::kDcgan, 128), 64);
  EXPECT_EQ(block(GanArchitecture::kDcgan, 160), 40);
  EXPECT_EQ(block(GanArchitecture::kDcgan, 256), 16);
  EXPECT_EQ(block(GanArchitecture::kDcgan, 1024), 1);
  EXPECT_EQ(block(GanArchitecture::kMlp, 1024), 64);
}

GanModel ConditionalGenerator(GanArchitecture architecture) {
  GanOptions options = SmallGanOptions();
  options.architecture = architecture;
  options.classes = 3;
  return SmallGenerator(options);
}

TEST(ImageGeneratorTest, WithoutALabelEachClassHasItsTurn) {
  for (const GanArchitecture architecture :
       {GanArchitecture::kMlp, GanArchitecture::kDcgan}) {
    const GanModel model = ConditionalGenerator(architecture);
    // Beyond a block: image 64 is of class 1.
    const at::Tensor mixed =
        (*ImageGenerator::Create(model))->Generate(3, 0, 70);
    for (const int64_t label : {0, 1, 2}) {
      const at::Tensor of_class =
          (*ImageGenerator::Create(model, label))->Generate(3, 0, 70);
      for (int64_t i = 0; i < 70; ++i) {
        EXPECT_EQ(mixed[i].allclose(of_class[i], 1e-5, 1e-6), i % 3 == label)
            << "image " << i << " of class " << label;
      }
    }
  }
}

TEST(ImageGeneratorTest, RefusesALabelThatTheModelDoesNotHave) {
  const GanModel model = ConditionalGenerator(GanArchitecture::kMlp);
  for (const int64_t label : {-1, 3}) {
    const absl::Status status = ImageGenerator::Create(model, label).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("has classes 0 to 2"));
  }
  EXPECT_THAT(
      std::string(
          ImageGenerator::Create(SmallGenerator(), 0).status().message()),
      ::testing::HasSubstr("has no classes"));
}

TEST(ImageGeneratorTest, RefusesWhatIsNoGenerator) {
  GanModel model = SmallGenerator();
  model.network = GanNetwork::kDiscriminator;
  EXPECT_EQ(ImageGenerator::Create(model).status().code(),
            absl::StatusCode::kInvalidArgument);
  model = SmallGenerator();
  model.shape = {3, 8, 8};
  EXPECT_EQ(ImageGenerator::Create(model).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace miniray::ml
