// A GAN that makes and judges images by their labels.

#include <string>

#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/gan.h"
#include "ml/gan/image_generator.h"
#include "tests/ml/gan/gan_testutil.h"

namespace miniray::ml {
namespace {

constexpr int64_t kBatch = 32;

TEST(ConditionalGanTest, LabelsTrainTheEmbeddingsOfBothNetworks) {
  for (const GanArchitecture architecture :
       {GanArchitecture::kMlp, GanArchitecture::kDcgan}) {
    GanOptions options = SmallGanOptions();
    options.architecture = architecture;
    options.classes = 4;
    auto gan = MakeGan(options);
    const NamedTensors before = Copy(gan->Weights());
    // Of classes 0 and 2 only.
    const at::Tensor labels = at::zeros({8}, at::kLong);
    labels.slice(0, 4).fill_(2);
    ASSERT_EQ(gan->TrainStep(SmallImages(8, 1), labels), absl::OkStatus());
    const NamedTensors after = gan->Weights();
    int embeddings = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i].first.find("embedding") == std::string::npos) continue;
      ++embeddings;
      for (const int64_t label : {0, 1, 2, 3}) {
        EXPECT_EQ(after[i].second[label].equal(before[i].second[label]),
                  label % 2 == 1)
            << after[i].first << " " << label;
      }
    }
    EXPECT_EQ(embeddings, 2);
  }
}

TEST(ConditionalGanTest, AccumulatesAndTrainsInBfloat16) {
  GanOptions options = SmallGanOptions();
  options.classes = 4;
  options.loop.accumulate = 2;
  options.loop.precision = train::Precision::kBfloat16;
  auto gan = MakeGan(options);
  const NamedTensors before = Copy(gan->Weights());
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(gan->TrainStep(SmallImages(8, i), SmallLabels(8, i)),
              absl::OkStatus());
    const NamedTensors now = gan->Weights();
    int embeddings = 0;
    for (size_t t = 0; t < now.size(); ++t) {
      EXPECT_TRUE(now[t].second.isfinite().all().item().toBool())
          << now[t].first;
      if (now[t].first.find("embedding") == std::string::npos) continue;
      ++embeddings;
      // Every second batch is a step, of weights in float32.
      EXPECT_EQ(now[t].second.equal(before[t].second), i == 0) << now[t].first;
      EXPECT_EQ(now[t].second.scalar_type(), at::kFloat);
    }
    EXPECT_EQ(embeddings, 2);
  }
  EXPECT_EQ(gan->EndEpoch()->at("samples"), 32);
}

TEST(ConditionalGanTest, TheGeneratorLearnsWhichLabelIsWhat) {
  GanOptions options = SmallGanOptions();
  options.classes = 4;
  auto gan = MakeGan(options);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(gan->TrainStep(SmallImages(kBatch, i * kBatch),
                             SmallLabels(kBatch, i * kBatch)),
              absl::OkStatus());
  }
  GanModel model = {.network = GanNetwork::kGenerator,
                    .latent_dim = options.latent_dim,
                    .shape = options.shape,
                    .classes = 4,
                    .weights = gan->NetworkWeights(GanNetwork::kGenerator)};
  for (int64_t label = 0; label < 4; ++label) {
    const at::Tensor mean = (*ImageGenerator::Create(model, label))
                                ->Generate(1, 0, 64)
                                .mean(0)[0];  // [8, 8]
    // The square of the label is bright, the others are dark.
    for (int64_t place = 0; place < 4; ++place) {
      const int64_t y = place / 2 * 4;
      const int64_t x = place % 2 * 4;
      const double shade =
          mean.slice(0, y, y + 4).slice(1, x, x + 4).mean().item().toDouble();
      EXPECT_EQ(shade > 0, place == label)
          << "label " << label << ", place " << place << ": " << shade;
    }
  }
}

TEST(ConditionalGanTest, LabelsMustBeThereWithClassesAndOnlyThen) {
  auto plain = MakeGan(SmallGanOptions());
  EXPECT_THROW((void)plain->TrainStep(SmallImages(4, 1), SmallLabels(4, 1)),
               c10::Error);
  GanOptions options = SmallGanOptions();
  options.classes = 4;
  auto gan = MakeGan(options);
  EXPECT_THROW((void)gan->TrainStep(SmallImages(4, 1)), c10::Error);
  EXPECT_THROW((void)gan->TrainStep(SmallImages(4, 1), SmallLabels(5, 1)),
               c10::Error);
  EXPECT_THROW(
      (void)gan->TrainStep(SmallImages(4, 1), SmallLabels(4, 1).to(at::kFloat)),
      c10::Error);
  EXPECT_THROW(
      (void)gan->TrainStep(SmallImages(4, 1), at::full({4}, 4, at::kLong)),
      c10::Error);
  EXPECT_EQ(gan->TrainStep(SmallImages(4, 1), SmallLabels(4, 1)),
            absl::OkStatus());
}

}  // namespace
}  // namespace miniray::ml
