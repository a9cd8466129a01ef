#include "ml/classify/classifier.h"

#include <cmath>
#include <limits>

#include "ATen/ops/allclose.h"
#include "ATen/ops/full.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"
#include "ml/data/dataset_loader.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;

// Two pixels, two classes, one hidden unit.
ClassifierOptions TinyOptions() {
  return {.height = 1, .width = 2, .hidden = 1, .classes = 2, .lr = 0.5};
}

std::unique_ptr<Classifier> Tiny(ClassifierOptions options = TinyOptions()) {
  auto classifier = *Classifier::Create(options);
  // hidden = relu(x0), logits = [2 hidden, -0.5].
  EXPECT_TRUE(classifier
                  ->SetWeights(
                      {{"hidden.weight", at::tensor({1.0F, 0.0F}).view({1, 2})},
                       {"hidden.bias", at::zeros({1})},
                       {"output.weight", at::tensor({2.0F, 0.0F}).view({2, 1})},
                       {"output.bias", at::tensor({0.0F, -0.5F})}})
                  .ok());
  classifier->BeginEpoch(0);
  return classifier;
}

// Images [1, 1] (255 is 1, 0 is -1) of class 0, and [-1, 1] of class 1.
ImageDataset TwoImages() {
  ImageDataset dataset;
  dataset.images = at::full({2, 1, 1, 2}, 255, at::kByte);
  dataset.images.data_ptr<uint8_t>()[2] = 0;
  dataset.labels = at::tensor(std::vector<int64_t>{0, 1});
  dataset.class_names = {"bright", "dark"};
  return dataset;
}

double Value(const NamedTensors& weights, size_t tensor, int64_t i) {
  return weights[tensor].second.data_ptr<float>()[i];
}

TEST(ClassifierTest, EvaluatesAsOneWorksItOut) {
  const Evaluation evaluation = Tiny()->Evaluate(TwoImages());
  // Logits [2, -0.5] and [0, -0.5]: both say the first class. Losses
  // log(1 + e^-2.5) and log(1 + e^0.5).
  EXPECT_DOUBLE_EQ(evaluation.accuracy, 0.5);
  EXPECT_NEAR(evaluation.loss, (0.0788897 + 0.9740770) / 2, 1e-6);
}

TEST(ClassifierTest, AStepFollowsTheGradient) {
  const auto classifier = Tiny();
  const ImageDataset dataset = TwoImages();
  const ImageBatch first = {dataset.images.slice(0, 0, 1),
                            dataset.labels.slice(0, 0, 1)};
  EXPECT_NEAR(*classifier->TrainStep(first), 0.0788897, 1e-6);
  const NamedTensors weights = classifier->Weights();
  EXPECT_EQ(weights[2].first, "output.weight");
  // The gradient of logit 0 is softmax - 1 = -1 / (1 + e^2.5) = -0.0758582;
  // times hidden (1) for output.weight, times output.weight (2) for the hidden
  // bias.
  EXPECT_NEAR(Value(weights, 2, 0), 2 + 0.5 * 0.0758582, 1e-6);
  EXPECT_NEAR(Value(weights, 2, 1), -0.5 * 0.0758582, 1e-6);
  EXPECT_NEAR(Value(weights, 1, 0), 0.5 * 2 * 0.0758582, 1e-6);
}

TEST(ClassifierTest, FedProxDrawsBackToTheLastWeights) {
  ClassifierOptions options = TinyOptions();
  options.fedprox_mu = 1;
  const auto classifier = Tiny(options);
  const ImageDataset dataset = TwoImages();
  const ImageBatch first = {dataset.images.slice(0, 0, 1),
                            dataset.labels.slice(0, 0, 1)};
  ASSERT_TRUE(classifier->TrainStep(first).ok());
  const double once = Value(classifier->Weights(), 3, 0);
  EXPECT_NEAR(once, 0.5 * 0.0758582, 1e-6);
  // At the center the term was 0. Now it takes half of the way back.
  ASSERT_TRUE(classifier->TrainStep(first).ok());
  const double twice = Value(classifier->Weights(), 3, 0);
  EXPECT_LT(twice, once / 2 + 0.5 * 0.0758582);
  EXPECT_GT(twice, once / 2);
}

TEST(ClassifierTest, LearnsASyntheticSet) {
  for (const auto& [optimizer, lr] :
       {std::pair<std::string, double>{"sgd", 0.1}, {"adamw", 0.003}}) {
    const ImageDataset train = *LoadImageDataset(
        {.name = "synthetic",
         .synthetic = {.count = 200, .channels = 1, .height = 8, .width = 8}});
    const ImageDataset test = *LoadImageDataset(
        {.name = "synthetic",
         .split = "test",
         .synthetic = {.count = 100, .channels = 1, .height = 8, .width = 8}});
    const auto classifier = *Classifier::Create({.height = 8,
                                                 .width = 8,
                                                 .hidden = 32,
                                                 .optimizer = optimizer,
                                                 .lr = lr});
    const double before = classifier->Evaluate(test).loss;
    classifier->BeginEpoch(0);
    for (int i = 0; i < 60; ++i) {
      ASSERT_TRUE(classifier->TrainStep({train.images, train.labels}).ok());
    }
    const train::Metrics metrics = *classifier->EndEpoch();
    EXPECT_EQ(metrics.at("samples"), 60 * 200);
    EXPECT_EQ(metrics.at("lr"), lr);
    const Evaluation after = classifier->Evaluate(test);
    EXPECT_LT(after.loss, before / 2) << optimizer;
    EXPECT_GT(after.accuracy, 0.9) << optimizer;
  }
}

// Two halves of a batch, and the batch.
TEST(ClassifierTest, AccumulatedBatchesAreOneStep) {
  const ImageDataset train = *LoadImageDataset(
      {.name = "synthetic",
       .synthetic = {.count = 40, .channels = 1, .height = 8, .width = 8}});
  const auto part = [&](int64_t begin, int64_t end) {
    return ImageBatch{train.images.slice(0, begin, end),
                      train.labels.slice(0, begin, end)};
  };
  const auto whole = *Classifier::Create({.height = 8, .width = 8});
  const auto halves =
      *Classifier::Create({.height = 8, .width = 8, .loop = {.accumulate = 2}});
  whole->BeginEpoch(0);
  halves->BeginEpoch(0);
  ASSERT_TRUE(whole->TrainStep(part(0, 40)).ok());
  ASSERT_TRUE(halves->TrainStep(part(0, 30)).ok());
  ASSERT_TRUE(halves->TrainStep(part(30, 40)).ok());
  const NamedTensors a = whole->Weights(), b = halves->Weights();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::allclose(a[i].second, b[i].second, 1e-5, 1e-6))
        << a[i].first;
  }
  EXPECT_NEAR(halves->EndEpoch()->at("loss"), whole->EndEpoch()->at("loss"),
              1e-5);
}

TEST(ClassifierTest, GoesOnFromACheckpointBitByBit) {
  const ImageDataset train = *LoadImageDataset(
      {.name = "synthetic",
       .synthetic = {.count = 40, .channels = 1, .height = 8, .width = 8}});
  const ClassifierOptions options = {
      .height = 8,
      .width = 8,
      .optimizer = "adamw",
      .fedprox_mu = 0.1,
      .lr = 0.01,
      .loop = {.schedule = {.kind = train::LrSchedule::Kind::kLinear,
                            .total_steps = 20}}};
  const auto epoch = [&](Classifier& classifier, int number) {
    classifier.BeginEpoch(number);
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(classifier.TrainStep({train.images, train.labels}).ok());
    }
    return classifier.EndEpoch()->at("lr");
  };
  const auto through = *Classifier::Create(options);
  epoch(*through, 0);
  ASSERT_TRUE(through->SetWeights(through->Weights()).ok());
  const train::CheckpointFiles files = *through->SaveState();
  const double lr = epoch(*through, 1);

  ClassifierOptions other = options;
  other.seed = 9;
  const auto resumed = *Classifier::Create(other);
  ASSERT_EQ(resumed->LoadState(files), absl::OkStatus());
  EXPECT_DOUBLE_EQ(epoch(*resumed, 1), lr);
  // 9 steps before the last one.
  EXPECT_DOUBLE_EQ(lr, 0.01 * (1 - 9.0 / 20));
  const NamedTensors a = through->Weights(), b = resumed->Weights();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  }
  train::CheckpointFiles incomplete = files;
  ASSERT_EQ(incomplete.erase("model.loop"), 1u);
  EXPECT_EQ(resumed->LoadState(incomplete).code(), kInvalidArgument);
}

TEST(ClassifierTest, SeedDecidesTheFirstWeights) {
  const auto first = [](uint64_t seed) {
    return Value((*Classifier::Create({.seed = seed}))->Weights(), 0, 0);
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST(ClassifierTest, RefusesWhatCannotBe) {
  EXPECT_EQ(Classifier::Create({.hidden = 0}).status().code(),
            kInvalidArgument);
  EXPECT_EQ(Classifier::Create({.optimizer = "adam"}).status().code(),
            kInvalidArgument);
  EXPECT_EQ(Classifier::Create({.fedprox_mu = -1}).status().code(),
            kInvalidArgument);
  EXPECT_EQ(Classifier::Create({.lr = 0}).status().code(), kInvalidArgument);
  EXPECT_EQ(Classifier::Create({.device = "gpu"}).status().code(),
            kInvalidArgument);
  EXPECT_EQ(Tiny()->SetWeights({}).code(), kInvalidArgument);
}

}  // namespace
}  // namespace miniray::ml
