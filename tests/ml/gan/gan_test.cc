#include "ml/gan/gan.h"

#include <algorithm>
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
  return MakeGan(SmallGanOptions(seed));
}

void Train(Gan& gan, uint64_t images, int64_t batch = kBatch) {
  ASSERT_EQ(gan.TrainStep(SmallImages(batch, images)), absl::OkStatus());
}
void TrainDiscriminator(Gan& gan, uint64_t images) {
  ASSERT_EQ(gan.DiscriminatorStep(SmallImages(kBatch, images), {}),
            absl::OkStatus());
}

double LossOf(const Gan& gan, const char* name) {
  return gan.Now().metrics.at(name);
}

NamedTensors CopyOf(const Gan& gan, GanNetwork network) {
  return Copy(gan.NetworkWeights(network));
}

TEST(GanTest, DiscriminatorStepLeavesTheGeneratorsParametersAlone) {
  auto gan = MakeGan();
  const NamedTensors generator = CopyOf(*gan, GanNetwork::kGenerator);
  const NamedTensors discriminator = CopyOf(*gan, GanNetwork::kDiscriminator);

  TrainDiscriminator(*gan, 1);

  EXPECT_FALSE(
      Equal(discriminator, gan->NetworkWeights(GanNetwork::kDiscriminator)));
  // Generating images in training mode moves BatchNorm's statistics, and those
  // only.
  const NamedTensors after = gan->NetworkWeights(GanNetwork::kGenerator);
  const auto specs = GanTensors(GanNetwork::kGenerator, gan->options().sizes());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(generator[i].second.equal(after[i].second), !specs[i].is_buffer)
        << specs[i].name;
  }
}

TEST(GanTest, GeneratorStepLeavesTheDiscriminatorAlone) {
  auto gan = MakeGan();
  TrainDiscriminator(*gan, 1);
  const NamedTensors generator = CopyOf(*gan, GanNetwork::kGenerator);
  const NamedTensors discriminator = CopyOf(*gan, GanNetwork::kDiscriminator);

  ASSERT_EQ(gan->GeneratorStep(), absl::OkStatus());

  EXPECT_TRUE(
      Equal(discriminator, gan->NetworkWeights(GanNetwork::kDiscriminator)));
  EXPECT_FALSE(Equal(generator, gan->NetworkWeights(GanNetwork::kGenerator)));

  // It trains again afterwards: its parameters were only put aside.
  TrainDiscriminator(*gan, 2);
  const NamedTensors after = gan->NetworkWeights(GanNetwork::kDiscriminator);
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_FALSE(after[i].second.equal(discriminator[i].second))
        << after[i].first;
  }
}

TEST(GanTest, GeneratorStepNeedsADiscriminatorStep) {
  auto gan = MakeGan();
  EXPECT_THROW((void)gan->GeneratorStep(), c10::Error);
  Train(*gan, 1);
  EXPECT_THROW((void)gan->GeneratorStep(), c10::Error);
}

TEST(GanTest, SameSeedsGiveTheSameWeights) {
  auto a = MakeGan(1);
  auto b = MakeGan(1);
  EXPECT_TRUE(Equal(a->Weights(), b->Weights()));
  // Interleaved, so that a shared random number generator would show.
  for (int i = 0; i < 3; ++i) {
    Train(*a, i);
    Train(*b, i);
  }
  EXPECT_TRUE(Equal(a->Weights(), b->Weights()));
}

TEST(GanTest, EachSeedMatters) {
  GanOptions options = SmallGanOptions(1);
  auto base = MakeGan(options);
  options.noise_seed += 1;
  auto other_noise = MakeGan(options);
  EXPECT_TRUE(Equal(base->Weights(), other_noise->Weights()));
  Train(*base, 1);
  Train(*other_noise, 1);
  EXPECT_FALSE(Equal(base->Weights(), other_noise->Weights()));

  EXPECT_FALSE(Equal(MakeGan(1)->Weights(), MakeGan(2)->Weights()));
}

TEST(GanTest, LossesAreMeansOfTheEpoch) {
  auto gan = MakeGan();
  gan->BeginEpoch(3, 3 * kBatch);
  EXPECT_EQ(gan->Now().epoch, 3);
  EXPECT_TRUE(gan->Now().metrics.empty());
  Train(*gan, 1);
  // Half a step is none.
  TrainDiscriminator(*gan, 2);
  const train::Progress progress = gan->Now();
  EXPECT_EQ(progress.samples_done, kBatch);
  EXPECT_EQ(progress.samples, 3 * kBatch);
  ASSERT_EQ(gan->GeneratorStep(), absl::OkStatus());

  // An untrained discriminator says "maybe" to everything.
  auto other = MakeGan();
  Train(*other, 1);
  const train::Metrics first = *other->EndEpoch();
  EXPECT_EQ(first.at("samples"), kBatch);
  EXPECT_EQ(first.at("lr"), other->options().lr);
  EXPECT_NEAR(first.at("d_loss"), std::log(2.0), 0.05);
  EXPECT_NEAR(first.at("g_loss"), std::log(2.0), 0.05);
  other->BeginEpoch(1);
  Train(*other, 2);
  const train::Metrics second = *other->EndEpoch();
  const train::Metrics both = *gan->EndEpoch();
  EXPECT_EQ(both.at("samples"), 2 * kBatch);
  for (const char* loss : {"d_loss", "g_loss"}) {
    EXPECT_DOUBLE_EQ(both.at(loss), (first.at(loss) + second.at(loss)) / 2);
  }
  EXPECT_FALSE(both.contains("d_gradient_norm"));
}

TEST(GanTest, AccumulatedBatchesMakeOneStep) {
  GanOptions options = SmallGanOptions();
  options.loop.accumulate = 2;
  auto gan = MakeGan(options);
  const NamedTensors before = Copy(gan->Weights());
  Train(*gan, 1);
  // Nothing but BatchNorm's statistics has moved.
  const auto moved = [&] {
    int parameters = 0;
    size_t i = 0;
    for (const GanNetwork network : kGanNetworks) {
      for (const TensorSpec& spec : GanTensors(network, options.sizes())) {
        const bool same = gan->Weights()[i].second.equal(before[i].second);
        parameters += !spec.is_buffer && !same;
        ++i;
      }
    }
    return parameters;
  };
  EXPECT_EQ(moved(), 0);
  EXPECT_EQ(gan->SaveState().status().code(),
            absl::StatusCode::kFailedPrecondition);
  Train(*gan, 2);
  EXPECT_GT(moved(), 0);
  // The rest of an epoch is a step, too.
  gan->BeginEpoch(1);
  const NamedTensors one = Copy(gan->Weights());
  Train(*gan, 3);
  EXPECT_TRUE(gan->Weights().back().second.equal(one.back().second));
  ASSERT_EQ(gan->EndEpoch().status(), absl::OkStatus());
  EXPECT_FALSE(gan->Weights().back().second.equal(one.back().second));
}

TEST(GanTest, GradientsAreClippedForEachNetwork) {
  GanOptions options = SmallGanOptions();
  options.loop.clip_norm = 1e-12;
  options.lr = 1e-4;
  auto clipped = MakeGan(options);
  Train(*clipped, 1);
  const train::Metrics metrics = *clipped->EndEpoch();
  EXPECT_GT(metrics.at("d_gradient_norm"), 1e-12);
  EXPECT_GT(metrics.at("g_gradient_norm"), 1e-12);
  // Adam divides by the gradients' size plus 1e-8: only such small ones move
  // the weights by less than the learning rate.
  auto plain = *Gan::Create(options);
  double largest = 0;
  const NamedTensors after =
      clipped->NetworkWeights(GanNetwork::kDiscriminator);
  const NamedTensors before = plain->NetworkWeights(GanNetwork::kDiscriminator);
  for (size_t i = 0; i < after.size(); ++i) {
    largest = std::max(
        largest,
        after[i].second.sub(before[i].second).abs().max().item().toDouble());
  }
  EXPECT_LT(largest, options.lr / 100);
}

TEST(GanTest, TheScheduleChangesTheLearningRateOfBoth) {
  GanOptions options = SmallGanOptions();
  options.loop.schedule = {.kind = train::LrSchedule::Kind::kLinear,
                           .total_steps = 4};
  options.loop.schedule_unit = train::ScheduleUnit::kEpoch;
  auto gan = MakeGan(options);
  for (int epoch = 0; epoch < 3; ++epoch) {
    gan->BeginEpoch(epoch);
    Train(*gan, 1);
    EXPECT_DOUBLE_EQ(gan->EndEpoch()->at("lr"), options.lr * (4 - epoch) / 4);
  }
}

TEST(GanTest, BfloatLearnsTheSameThing) {
  GanOptions options = SmallGanOptions();
  options.loop.precision = train::Precision::kBfloat16;
  auto half = MakeGan(options);
  auto full = MakeGan();
  Train(*half, 1);
  Train(*full, 1);
  // Rounded to 8 bits: near, and not the same.
  EXPECT_NE(LossOf(*half, "d_loss"), LossOf(*full, "d_loss"));
  EXPECT_NEAR(LossOf(*half, "d_loss"), LossOf(*full, "d_loss"), 0.02);
  EXPECT_NEAR(LossOf(*half, "g_loss"), LossOf(*full, "g_loss"), 0.02);
  for (int i = 0; i < 30; ++i) TrainDiscriminator(*half, i);
  half->BeginEpoch(1);
  Train(*half, 100);
  EXPECT_LT(LossOf(*half, "d_loss"), 0.1);
  for (const auto& [name, tensor] : half->Weights()) {
    EXPECT_NE(tensor.scalar_type(), at::kBFloat16) << name;
  }
}

TEST(GanTest, ALossThatIsNotFiniteIsAnErrorOrASkippedStep) {
  GanOptions options = SmallGanOptions();
  at::Tensor bad = SmallImages(kBatch, 1);
  bad.data_ptr<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  auto gan = MakeGan(options);
  const absl::Status status = gan->TrainStep(bad);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("discriminator: epoch 1"));

  options.loop.on_non_finite = train::OnNonFinite::kSkip;
  gan = MakeGan(options);
  ASSERT_EQ(gan->TrainStep(bad), absl::OkStatus());
  Train(*gan, 2);
  const train::Metrics metrics = *gan->EndEpoch();
  EXPECT_EQ(metrics.at("skipped_steps"), 1);
  EXPECT_NEAR(metrics.at("d_loss"), std::log(2.0), 0.05);
}

TEST(GanTest, DiscriminatorLearnsWhatIsReal) {
  auto gan = MakeGan();
  for (int i = 0; i < 30; ++i) TrainDiscriminator(*gan, i);
  gan->BeginEpoch(1);
  Train(*gan, 100);
  EXPECT_LT(LossOf(*gan, "d_loss"), 0.1);
}

TEST(GanTest, GeneratorLearnsTheImages) {
  auto gan = MakeGan();
  Train(*gan, 0);
  const double loss_before = LossOf(*gan, "g_loss");
  for (int i = 0; i < 60; ++i) TrainDiscriminator(*gan, i);
  gan->BeginEpoch(1);
  Train(*gan, 61);
  const double loss_beaten = LossOf(*gan, "g_loss");
  EXPECT_GT(loss_beaten, loss_before);
  for (int i = 0; i < 150; ++i) Train(*gan, i);
  gan->BeginEpoch(1);
  for (int i = 0; i < 10; ++i) Train(*gan, i);
  EXPECT_LT(LossOf(*gan, "g_loss"), loss_beaten);
}

TEST(GanTest, LabelSmoothingChangesOnlyTheTargetOfRealImages) {
  GanOptions options = SmallGanOptions(1);
  options.label_smoothing = 0.2;
  auto smooth = MakeGan(options);
  auto plain = MakeGan(1);
  for (int i = 0; i < 30; ++i) {
    TrainDiscriminator(*smooth, i);
    TrainDiscriminator(*plain, i);
  }
  smooth->BeginEpoch(1);
  plain->BeginEpoch(1);
  Train(*smooth, 100);
  Train(*plain, 100);
  // The best that a discriminator can do is the entropy of (0.8, 0.2) on real
  // images and 0 on the others.
  const double floor = -(0.8 * std::log(0.8) + 0.2 * std::log(0.2)) / 2;
  EXPECT_GE(LossOf(*smooth, "d_loss"), floor - 1e-6);
  EXPECT_LT(LossOf(*plain, "d_loss"), floor);
}

TEST(GanTest, HingeTrainsBothNetworks) {
  GanOptions options = SmallGanOptions();
  options.loss = GanLoss::kHinge;
  auto gan = MakeGan(options);
  Train(*gan, 0);
  // An untrained discriminator says about 0 to everything.
  EXPECT_NEAR(LossOf(*gan, "d_loss"), 2, 0.2);
  EXPECT_NEAR(LossOf(*gan, "g_loss"), 0, 0.2);
  for (int i = 0; i < 60; ++i) TrainDiscriminator(*gan, i);
  gan->BeginEpoch(1);
  Train(*gan, 100);
  // Nearly all beyond the margins, and so the generated ones near -1 or below.
  EXPECT_LT(LossOf(*gan, "d_loss"), 0.3);
  EXPECT_GT(LossOf(*gan, "g_loss"), 0.5);
  const NamedTensors before = CopyOf(*gan, GanNetwork::kGenerator);
  Train(*gan, 101);
  EXPECT_FALSE(Equal(before, gan->NetworkWeights(GanNetwork::kGenerator)));
}

TEST(GanTest, WeightsTravelToAnotherGan) {
  auto a = MakeGan(1);
  auto b = MakeGan(2);
  for (int i = 0; i < 2; ++i) Train(*a, i);
  ASSERT_TRUE(b->SetWeights(Copy(a->Weights())).ok());
  EXPECT_TRUE(Equal(a->Weights(), b->Weights()));
  EXPECT_EQ(a->Weights().front().first, "generator.layers.0.weight");
  EXPECT_EQ(a->Weights().back().first, "discriminator.layers.9.bias");
  EXPECT_TRUE(Equal(SelectNetwork(GanNetwork::kDiscriminator, a->Weights()),
                    a->NetworkWeights(GanNetwork::kDiscriminator)));
  Train(*b, 3);  // Still trains.
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
  EXPECT_THROW((void)gan->TrainStep(at::zeros({4, 3, 8, 8})), c10::Error);
  EXPECT_THROW((void)gan->TrainStep(at::zeros({4, 64})), c10::Error);
  EXPECT_THROW((void)gan->TrainStep(at::zeros({1, 1, 8, 8})), c10::Error);
  EXPECT_THROW((void)gan->TrainStep(at::zeros({4, 1, 8, 8}, at::kByte)),
               c10::Error);
  // The size of a batch may change.
  EXPECT_EQ(gan->TrainStep(at::zeros({2, 1, 8, 8})), absl::OkStatus());
  EXPECT_EQ(gan->TrainStep(at::zeros({5, 1, 8, 8})), absl::OkStatus());
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
  for (const double decay : {-0.1, 1.0, std::nan("")}) {
    GanOptions options = good;
    options.ema_decay = decay;
    EXPECT_EQ(Gan::Create(options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  GanOptions options = good;
  options.loss = GanLoss::kHinge;
  options.label_smoothing = 0.1;
  EXPECT_THAT(std::string(Gan::Create(options).status().message()),
              HasSubstr("label_smoothing is 0.1 with the hinge loss"));
  options = good;
  options.loss = static_cast<GanLoss>(2);
  EXPECT_THAT(std::string(Gan::Create(options).status().message()),
              HasSubstr("the loss is 2, which there is not"));
  options = good;
  options.architecture = static_cast<GanArchitecture>(2);
  EXPECT_THAT(std::string(Gan::Create(options).status().message()),
              HasSubstr("the architecture is 2; expected mlp or dcgan"));
  options = good;
  options.latent_dim = 0;
  EXPECT_FALSE(Gan::Create(options).ok());
  options = good;
  options.device = "gpu";
  EXPECT_EQ(Gan::Create(options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options = good;
  options.loop.accumulate = 0;
  EXPECT_EQ(Gan::Create(options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace miniray::ml
