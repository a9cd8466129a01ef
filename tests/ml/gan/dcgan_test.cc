// The training step of a DCGAN, as far as it differs from that of an mlp.

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/gan.h"
#include "tests/ml/gan/gan_testutil.h"

namespace miniray::ml {
namespace {

GanOptions DcganOptions() {
  GanOptions options = SmallGanOptions();
  options.architecture = GanArchitecture::kDcgan;
  options.shape = {1, 16, 16};  // Two halvings, and so a BatchNorm in both.
  return options;
}

// SmallImages, each pixel four times: [count, 1, 16, 16].
at::Tensor DcganImages(int64_t count, uint64_t seed) {
  return SmallImages(count, seed)
      .repeat_interleave(2, 2)
      .repeat_interleave(2, 3);
}

TEST(DcganTest, StepsTrainOneNetworkEach) {
  auto gan = MakeGan(DcganOptions());
  const NamedTensors generator =
      Copy(gan->NetworkWeights(GanNetwork::kGenerator));
  const NamedTensors untrained =
      Copy(gan->NetworkWeights(GanNetwork::kDiscriminator));
  ASSERT_EQ(gan->DiscriminatorStep(DcganImages(8, 1), {}), absl::OkStatus());
  const NamedTensors discriminator =
      Copy(gan->NetworkWeights(GanNetwork::kDiscriminator));
  for (size_t i = 0; i < discriminator.size(); ++i) {
    EXPECT_FALSE(discriminator[i].second.equal(untrained[i].second))
        << discriminator[i].first;
  }
  const auto specs = GanTensors(GanNetwork::kGenerator, gan->options().sizes());
  const NamedTensors between = gan->NetworkWeights(GanNetwork::kGenerator);
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(generator[i].second.equal(between[i].second), !specs[i].is_buffer)
        << specs[i].name;
  }

  // Not the discriminator's BatchNorms either.
  ASSERT_EQ(gan->GeneratorStep(), absl::OkStatus());
  EXPECT_TRUE(
      Equal(discriminator, gan->NetworkWeights(GanNetwork::kDiscriminator)));
  const NamedTensors after = gan->NetworkWeights(GanNetwork::kGenerator);
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_FALSE(generator[i].second.equal(after[i].second)) << specs[i].name;
  }
}

TEST(DcganTest, ShowsItsDiscriminatorBatchesOfOneKind) {
  auto gan = MakeGan(DcganOptions());
  ASSERT_EQ(gan->DiscriminatorStep(DcganImages(8, 1), {}), absl::OkStatus());
  // One of real images and one of generated ones.
  int64_t batches = 0;
  for (const auto& [name, tensor] :
       gan->NetworkWeights(GanNetwork::kDiscriminator)) {
    if (name.find("num_batches") != std::string::npos) {
      batches = tensor.item().toLong();
    }
  }
  EXPECT_EQ(batches, 2);
}

TEST(DcganTest, DiscriminatorLearnsWhatIsReal) {
  GanOptions options = SmallGanOptions();
  options.architecture = GanArchitecture::kDcgan;
  auto gan = MakeGan(options);
  ASSERT_EQ(gan->TrainStep(SmallImages(32, 0)), absl::OkStatus());
  EXPECT_NEAR(gan->Now().metrics.at("d_loss"), std::log(2.0), 0.05);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(gan->DiscriminatorStep(SmallImages(32, i), {}), absl::OkStatus());
  }
  gan->BeginEpoch(1);
  ASSERT_EQ(gan->TrainStep(SmallImages(32, 300)), absl::OkStatus());
  EXPECT_LT(gan->Now().metrics.at("d_loss"), 0.3);
}

TEST(DcganTest, IsTheSameForTheSameSeed) {
  auto a = MakeGan(DcganOptions());
  auto b = MakeGan(DcganOptions());
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(a->TrainStep(DcganImages(8, i)), absl::OkStatus());
    ASSERT_EQ(b->TrainStep(DcganImages(8, i)), absl::OkStatus());
  }
  EXPECT_TRUE(Equal(a->Weights(), b->Weights()));
}

}  // namespace
}  // namespace miniray::ml
