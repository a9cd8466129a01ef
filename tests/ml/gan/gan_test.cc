#include "ml/gan/gan.h"

#include <cmath>
#include <limits>
#include <string>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/gan_tensors.h"
#include "tests/ml/gan/gan_testutil.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 32;

std::unique_ptr<Gan> MakeGan(uint64_t seed = 1) {
  return *Gan::Create(SmallGanOptions(seed));
}

NamedTensors CopyOf(const Gan& gan, GanNetwork network) {
  return Copy(gan.NetworkWeights(network));
}

TEST(GanTest, DiscriminatorStepLeavesTheGeneratorsParametersAlone) {
  auto gan = MakeGan();
  const NamedTensors generator = CopyOf(*gan, GanNetwork::kGenerator);
  const NamedTensors discriminator = CopyOf(*gan, GanNetwork::kDiscriminator);

  gan->DiscriminatorStep(SmallImages(kBatch, 1));

  EXPECT_FALSE(
      Equal(discriminator, gan->NetworkWeights(GanNetwork::kDiscriminator)));
  // Generating images in training mode moves BatchNorm's statistics, and those
  // only.
  const NamedTensors after = gan->NetworkWeights(GanNetwork::kGenerator);
  const auto specs = GanTensors(GanNetwork::kGenerator, 16, kSmallShape);
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(generator[i].second.equal(after[i].second), !specs[i].is_buffer)
        << specs[i].name;
  }
}

TEST(GanTest, GeneratorStepLeavesTheDiscriminatorAlone) {
  auto gan = MakeGan();
  gan->DiscriminatorStep(SmallImages(kBatch, 1));
  const NamedTensors generator = CopyOf(*gan, GanNetwork::kGenerator);
  const NamedTensors discriminator = CopyOf(*gan, GanNetwork::kDiscriminator);

  gan->GeneratorStep();

  EXPECT_TRUE(
      Equal(discriminator, gan->NetworkWeights(GanNetwork::kDiscriminator)));
  EXPECT_FALSE(Equal(generator, gan->NetworkWeights(GanNetwork::kGenerator)));

  // It trains again afterwards: its parameters were only put aside.
  gan->DiscriminatorStep(SmallImages(kBatch, 2));
  const NamedTensors after = gan->NetworkWeights(GanNetwork::kDiscriminator);
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_FALSE(after[i].second.equal(discriminator[i].second))
        << after[i].first;
  }
}

TEST(GanTest, GeneratorStepNeedsADiscriminatorStep) {
  auto gan = MakeGan();
  EXPECT_THROW(gan->GeneratorStep(), c10::Error);
  gan->TrainStep(SmallImages(kBatch, 1));
  EXPECT_THROW(gan->GeneratorStep(), c10::Error);
}

TEST(GanTest, SameSeedsGiveTheSameWeights) {
  auto a = MakeGan(1);
  auto b = MakeGan(1);
  EXPECT_TRUE(Equal(a->Weights(), b->Weights()));
  // Interleaved, so that a shared random number generator would show.
  for (int i = 0; i < 3; ++i) {
    a->TrainStep(SmallImages(kBatch, i));
    b->TrainStep(SmallImages(kBatch, i));
  }
  EXPECT_TRUE(Equal(a->Weights(), b->Weights()));
}

TEST(GanTest, EachSeedMatters) {
  GanOptions options = SmallGanOptions(1);
  auto base = *Gan::Create(options);
  options.noise_seed += 1;
  auto other_noise = *Gan::Create(options);
  EXPECT_TRUE(Equal(base->Weights(), other_noise->Weights()));
  base->TrainStep(SmallImages(kBatch, 1));
  other_noise->TrainStep(SmallImages(kBatch, 1));
  EXPECT_FALSE(Equal(base->Weights(), other_noise->Weights()));

  EXPECT_FALSE(Equal(MakeGan(1)->Weights(), MakeGan(2)->Weights()));
}

TEST(GanTest, LossesAreMeansSinceTheReset) {
  auto gan = MakeGan();
  EXPECT_EQ(gan->MeanLosses().steps, 0);
  gan->TrainStep(SmallImages(kBatch, 1));
  const Gan::Losses first = gan->MeanLosses();
  EXPECT_EQ(first.steps, 1);
  // An untrained discriminator says "maybe" to everything.
  EXPECT_NEAR(first.discriminator, std::log(2.0), 0.05);
  EXPECT_NEAR(first.generator, std::log(2.0), 0.05);

  gan->TrainStep(SmallImages(kBatch, 2));
  const Gan::Losses both = gan->MeanLosses();
  EXPECT_EQ(both.steps, 2);
  gan->ResetLosses();
  EXPECT_EQ(gan->MeanLosses().discriminator, 0);
  EXPECT_NE(both.discriminator, first.discriminator);
}

TEST(GanTest, DiscriminatorLearnsWhatIsReal) {
  auto gan = MakeGan();
  for (int i = 0; i < 30; ++i) gan->DiscriminatorStep(SmallImages(kBatch, i));
  gan->ResetLosses();
  gan->TrainStep(SmallImages(kBatch, 100));
  EXPECT_LT(gan->MeanLosses().discriminator, 0.1);
}

TEST(GanTest, GeneratorLearnsTheImages) {
  auto gan = MakeGan();
  gan->TrainStep(SmallImages(kBatch, 0));
  const double loss_before = gan->MeanLosses().generator;
  for (int i = 0; i < 60; ++i) gan->DiscriminatorStep(SmallImages(kBatch, i));
  gan->ResetLosses();
  gan->TrainStep(SmallImages(kBatch, 61));
  const double loss_beaten = gan->MeanLosses().generator;
  EXPECT_GT(loss_beaten, loss_before);
  for (int i = 0; i < 150; ++i) gan->TrainStep(SmallImages(kBatch, i));
  gan->ResetLosses();
  for (int i = 0; i < 10; ++i) gan->TrainStep(SmallImages(kBatch, i));
  EXPECT_LT(gan->MeanLosses().generator, loss_beaten);
}

TEST(GanTest, LabelSmoothingChangesOnlyTheTargetOfRealImages) {
  GanOptions options = SmallGanOptions(1);
  options.label_smoothing = 0.2;
  auto smooth = *Gan::Create(options);
  auto plain = MakeGan(1);
  for (int i = 0; i < 30; ++i) {
    smooth->DiscriminatorStep(SmallImages(kBatch, i));
    plain->DiscriminatorStep(SmallImages(kBatch, i));
  }
  smooth->ResetLosses();
  plain->ResetLosses();
  smooth->TrainStep(SmallImages(kBatch, 100));
  plain->TrainStep(SmallImages(kBatch, 100));
  // The best that a discriminator can do is the entropy of (0.8, 0.2) on real
  // images and 0 on the others.
  const double floor = -(0.8 * std::log(0.8) + 0.2 * std::log(0.2)) / 2;
  EXPECT_GE(smooth->MeanLosses().discriminator, floor - 1e-6);
  EXPECT_LT(plain->MeanLosses().discriminator, floor);
}

TEST(GanTest, WeightsTravelToAnotherGan) {
  auto a = MakeGan(1);
  auto b = MakeGan(2);
  for (int i = 0; i < 2; ++i) a->TrainStep(SmallImages(kBatch, i));
  ASSERT_TRUE(b->SetWeights(Copy(a->Weights())).ok());
  EXPECT_TRUE(Equal(a->Weights(), b->Weights()));
  EXPECT_EQ(a->Weights().front().first, "generator.layers.0.weight");
  EXPECT_EQ(a->Weights().back().first, "discriminator.layers.9.bias");
  EXPECT_TRUE(Equal(SelectNetwork(GanNetwork::kDiscriminator, a->Weights()),
                    a->NetworkWeights(GanNetwork::kDiscriminator)));
  b->TrainStep(SmallImages(kBatch, 3));  // Still trains.
  EXPECT_FALSE(Equal(a->Weights(), b->Weights()));
}

TEST(GanTest, RefusesForeignWeightsAndStaysAsItWas) {
  auto gan = MakeGan(1);
  const NamedTensors before = Copy(gan->Weights());
  const NamedTensors other = Copy(MakeGan(2)->Weights());

  std::vector<std::pair<NamedTensors, std::string>> cases;
  cases.emplace_back(NamedTensors{}, "generator.layers.0.weight is missing");
  NamedTensors weights = other;
  weights.pop_back();
  cases.emplace_back(weights, "discriminator.layers.9.bias is missing");
  weights = other;
  weights.emplace_back("extra", at::zeros({1}));
  cases.emplace_back(weights, "'extra' is unknown");
  weights = other;
  std::swap(weights[0], weights[1]);
  cases.emplace_back(weights, "expected 'generator.layers.0.weight'");
  weights = other;
  weights.back().second = at::zeros({2});
  cases.emplace_back(weights, "layers.9.bias is Float [2]; expected Float [1]");
  weights = other;
  weights.back().second = at::zeros({1}, at::kDouble);
  cases.emplace_back(weights, "Double");
  weights = other;
  weights.back().second = at::Tensor();
  cases.emplace_back(weights, "undefined");

  for (const auto& [bad, message] : cases) {
    const absl::Status status = gan->SetWeights(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_TRUE(Equal(gan->Weights(), before)) << message;
  }
}

TEST(GanTest, RefusesBatchesOfAnotherKind) {
  auto gan = MakeGan();
  EXPECT_THROW(gan->TrainStep(at::zeros({4, 3, 8, 8})), c10::Error);
  EXPECT_THROW(gan->TrainStep(at::zeros({4, 64})), c10::Error);
  EXPECT_THROW(gan->TrainStep(at::zeros({1, 1, 8, 8})), c10::Error);
  EXPECT_THROW(gan->TrainStep(at::zeros({4, 1, 8, 8}, at::kByte)), c10::Error);
  gan->TrainStep(at::zeros({2, 1, 8, 8}));
  gan->TrainStep(at::zeros({5, 1, 8, 8}));  // The size of a batch may change.
}

TEST(GanTest, RefusesBadOptions) {
  GanOptions good = SmallGanOptions();
  for (const double lr :
       {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    GanOptions options = good;
    options.lr = lr;
    EXPECT_EQ(Gan::Create(options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  for (const double smoothing : {-0.1, 1.0, std::nan("")}) {
    GanOptions options = good;
    options.label_smoothing = smoothing;
    EXPECT_EQ(Gan::Create(options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  GanOptions options = good;
  options.latent_dim = 0;
  EXPECT_FALSE(Gan::Create(options).ok());
}

}  // namespace
}  // namespace miniray::ml
