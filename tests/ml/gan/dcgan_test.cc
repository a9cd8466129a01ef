// The training step of a DCGAN, as far as it differs from that of an mlp.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

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

void ExpectFinite(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(tensor.isfinite().all().item().toBool()) << name;
  }
}

TEST(DcganTest, ABatchThatIsNotFiniteDoesNotStayInTheStatistics) {
  GanOptions options = DcganOptions();
  options.loop.on_non_finite = train::OnNonFinite::kSkip;
  options.ema_decay = 0.5;  // Its statistics are copies.
  auto gan = MakeGan(options);
  at::Tensor bad = DcganImages(8, 1);
  bad.data_ptr<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const NamedTensors before =
      Copy(gan->NetworkWeights(GanNetwork::kDiscriminator));
  ASSERT_EQ(gan->TrainStep(bad), absl::OkStatus());
  ExpectFinite(gan->Weights());
  EXPECT_TRUE(Equal(gan->NetworkWeights(GanNetwork::kDiscriminator), before));
  // It goes on, and statistics move again.
  ASSERT_EQ(gan->TrainStep(DcganImages(8, 2)), absl::OkStatus());
  ExpectFinite(gan->Weights());
  EXPECT_FALSE(Equal(gan->NetworkWeights(GanNetwork::kDiscriminator), before));
  EXPECT_EQ(gan->EndEpoch()->at("skipped_steps"), 1);
}

TEST(DcganTest, AGeneratorThatOverflowsKeepsItsStatistics) {
  for (const auto on_non_finite :
       {train::OnNonFinite::kError, train::OnNonFinite::kSkip}) {
    GanOptions options = DcganOptions();
    options.loop.on_non_finite = on_non_finite;
    auto gan = MakeGan(options);
    NamedTensors weights = Copy(gan->Weights());
    ASSERT_EQ(weights[0].first, "generator.layers.0.weight");
    // Sums of it are infinite, and what BatchNorm makes of them is NaN.
    weights[0].second.fill_(std::numeric_limits<float>::max());
    ASSERT_EQ(gan->SetWeights(weights), absl::OkStatus());
    EXPECT_EQ(gan->TrainStep(DcganImages(8, 1)).ok(),
              on_non_finite == train::OnNonFinite::kSkip);
    EXPECT_TRUE(Equal(gan->Weights(), weights));
  }
}

TEST(DcganTest, AccumulatesAndTrainsInBfloat16WithClasses) {
  for (const auto precision :
       {train::Precision::kFloat32, train::Precision::kBfloat16}) {
    GanOptions options = DcganOptions();
    options.classes = 4;
    options.loop.accumulate = 2;
    options.loop.precision = precision;
    auto gan = MakeGan(options);
    const NamedTensors before = Copy(gan->Weights());
    std::vector<TensorSpec> specs;
    for (const GanNetwork network : kGanNetworks) {
      for (const TensorSpec& spec : GanTensors(network, options.sizes())) {
        specs.push_back(spec);
      }
    }
    ASSERT_EQ(specs.size(), before.size());
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(gan->TrainStep(DcganImages(8, i), SmallLabels(8, i)),
                absl::OkStatus());
      // The first of two batches moves statistics and nothing else.
      const NamedTensors now = gan->Weights();
      for (size_t t = 0; t < specs.size(); ++t) {
        EXPECT_EQ(now[t].second.scalar_type(), before[t].second.scalar_type());
        // In 16 bits the gradient of a bias may come to 0.
        if (i > 0 && specs[t].name.ends_with(".bias")) continue;
        EXPECT_EQ(now[t].second.equal(before[t].second),
                  i == 0 && !specs[t].is_buffer)
            << before[t].first << " after batch " << i;
      }
    }
    ExpectFinite(gan->Weights());
    const absl::StatusOr<train::Metrics> metrics = gan->EndEpoch();
    ASSERT_EQ(metrics.status(), absl::OkStatus());
    // Of logits near 0: about 0.7.
    EXPECT_GT(metrics->at("d_loss"), 0.1);
    EXPECT_LT(metrics->at("d_loss"), 2);
    EXPECT_EQ(metrics->at("samples"), 32);
  }
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
