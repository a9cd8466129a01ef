// The moving average of a generator.

#include <cmath>
#include <string>

#include "ATen/TensorOperators.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/gan.h"
#include "ml/gan/gan_tensors.h"
#include "tests/ml/gan/gan_testutil.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 32;

void Train(Gan& gan, uint64_t images) {
  ASSERT_EQ(gan.TrainStep(SmallImages(kBatch, images)), absl::OkStatus());
}
void TrainDiscriminator(Gan& gan, uint64_t images) {
  ASSERT_EQ(gan.DiscriminatorStep(SmallImages(kBatch, images), {}),
            absl::OkStatus());
}

GanOptions EmaOptions(double decay) {
  GanOptions options = SmallGanOptions();
  options.ema_decay = decay;
  return options;
}

// Parameters only: average * decay + weights * (1 - decay).
void ExpectAverage(const Gan& gan, const NamedTensors& average,
                   const NamedTensors& weights) {
  const NamedTensors now = gan.EmaWeights();
  const auto specs = GanTensors(GanNetwork::kGenerator, gan.options().sizes());
  const double decay = gan.options().ema_decay;
  ASSERT_EQ(now.size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(now[i].first, specs[i].name);
    if (specs[i].is_buffer) continue;
    EXPECT_TRUE(now[i].second.allclose(
        average[i].second * decay + weights[i].second * (1 - decay), 1e-6,
        1e-7))
        << specs[i].name;
  }
}

TEST(GanAverageTest, FollowsTheGeneratorStepByStep) {
  auto gan = MakeGan(EmaOptions(0.75));
  NamedTensors average = Copy(gan->NetworkWeights(GanNetwork::kGenerator));
  EXPECT_TRUE(Equal(gan->EmaWeights(), average));
  for (int i = 0; i < 3; ++i) {
    TrainDiscriminator(*gan, i);
    EXPECT_TRUE(Equal(gan->EmaWeights(), average));
    ASSERT_EQ(gan->GeneratorStep(), absl::OkStatus());
    const NamedTensors weights =
        Copy(gan->NetworkWeights(GanNetwork::kGenerator));
    ExpectAverage(*gan, average, weights);
    EXPECT_FALSE(Equal(gan->EmaWeights(), weights));
    average = Copy(gan->EmaWeights());
    // The statistics are the generator's own.
    const auto specs =
        GanTensors(GanNetwork::kGenerator, gan->options().sizes());
    for (size_t t = 0; t < specs.size(); ++t) {
      if (!specs[t].is_buffer) continue;
      EXPECT_TRUE(average[t].second.equal(weights[t].second)) << specs[t].name;
    }
  }
}

TEST(GanAverageTest, CountsStepsNotBatches) {
  GanOptions options = EmaOptions(0.75);
  options.loop.accumulate = 2;
  auto gan = MakeGan(options);
  const NamedTensors start = Copy(gan->NetworkWeights(GanNetwork::kGenerator));
  Train(*gan, 1);
  EXPECT_TRUE(Equal(gan->EmaWeights(), start));
  Train(*gan, 2);
  ExpectAverage(*gan, start, Copy(gan->NetworkWeights(GanNetwork::kGenerator)));
  const NamedTensors average = Copy(gan->EmaWeights());
  // The rest of the epoch is a step, too.
  Train(*gan, 3);
  EXPECT_TRUE(Equal(gan->EmaWeights(), average));
  ASSERT_EQ(gan->EndEpoch().status(), absl::OkStatus());
  ExpectAverage(*gan, average,
                Copy(gan->NetworkWeights(GanNetwork::kGenerator)));
}

TEST(GanAverageTest, ChangesNothingElse) {
  auto with = MakeGan(EmaOptions(0.9));
  auto without = MakeGan(EmaOptions(0));
  EXPECT_TRUE(without->EmaWeights().empty());
  for (int i = 0; i < 2; ++i) {
    Train(*with, i);
    Train(*without, i);
  }
  for (const GanNetwork network : kGanNetworks) {
    EXPECT_TRUE(
        Equal(with->NetworkWeights(network), without->NetworkWeights(network)));
  }
  EXPECT_TRUE(Equal(SelectTrainedGenerator(without->Weights()),
                    without->NetworkWeights(GanNetwork::kGenerator)));
  EXPECT_TRUE(
      Equal(SelectTrainedGenerator(with->Weights()), with->EmaWeights()));
}

TEST(GanAverageTest, TravelsWithTheWeights) {
  auto a = MakeGan(EmaOptions(0.5));
  for (int i = 0; i < 2; ++i) Train(*a, i);
  auto b = MakeGan(EmaOptions(0.5));
  ASSERT_EQ(b->SetWeights(Copy(a->Weights())), absl::OkStatus());
  EXPECT_TRUE(Equal(a->EmaWeights(), b->EmaWeights()));
  const NamedTensors weights = b->Weights();
  const auto specs = GanWeightSpecs(b->options().sizes(), true);
  ASSERT_EQ(weights.size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(weights[i].first, specs[i].name);
    if (specs[i].name.starts_with("generator_ema.")) {
      EXPECT_TRUE(specs[i].is_buffer);
    }
  }
  // It goes on from there.
  const NamedTensors average = Copy(b->EmaWeights());
  Train(*b, 3);
  ExpectAverage(*b, average, Copy(b->NetworkWeights(GanNetwork::kGenerator)));

  auto plain = MakeGan(SmallGanOptions());
  EXPECT_THAT(std::string(plain->SetWeights(a->Weights()).message()),
              HasSubstr("'generator_ema.layers.0.weight' is unknown"));
  EXPECT_THAT(std::string(a->SetWeights(plain->Weights()).message()),
              HasSubstr("generator_ema.layers.0.weight is missing"));
}

TEST(GanAverageTest, GoesOnFromACheckpointBitByBit) {
  auto gan = MakeGan(EmaOptions(0.9));
  Train(*gan, 1);
  ASSERT_EQ(gan->EndEpoch().status(), absl::OkStatus());
  const absl::StatusOr<train::CheckpointFiles> files = gan->SaveState();
  ASSERT_EQ(files.status(), absl::OkStatus());
  const NamedTensors saved = Copy(gan->Weights());
  gan->BeginEpoch(1);
  Train(*gan, 2);

  auto resumed = MakeGan(EmaOptions(0.9));
  for (int i = 5; i < 8; ++i) Train(*resumed, i);
  ASSERT_EQ(resumed->LoadState(*files), absl::OkStatus());
  EXPECT_TRUE(Equal(resumed->Weights(), saved));
  resumed->BeginEpoch(1);
  Train(*resumed, 2);
  EXPECT_TRUE(Equal(resumed->Weights(), gan->Weights()));

  auto plain = MakeGan(SmallGanOptions());
  const std::string with(plain->LoadState(*files).message());
  EXPECT_THAT(with, HasSubstr("of a training with an average"));
  EXPECT_THAT(with, HasSubstr("the ema_decay (--ema-decay) that it began"));
  ASSERT_EQ(plain->EndEpoch().status(), absl::OkStatus());
  const std::string without(gan->LoadState(*plain->SaveState()).message());
  EXPECT_THAT(without, HasSubstr("of a training without an average"));
  EXPECT_THAT(without, HasSubstr("go on with ema_decay 0 (no --ema-decay)"));
}

}  // namespace
}  // namespace miniray::ml
