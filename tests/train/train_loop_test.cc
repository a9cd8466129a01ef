#include "train/train_loop.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "torch/torch.h"
#include "train/fedprox.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = LrSchedule::Kind;

// A model of one number w, from 1; its loss is g * w, whose gradient is g.
struct Slope {
  explicit Slope(double lr = 1)
      : w(torch::ones({1}, torch::kFloat).set_requires_grad(true)),
        sgd({w}, torch::optim::SGDOptions(lr)) {}

  double value() const { return w.item<double>(); }

  torch::Tensor w;
  torch::optim::SGD sgd;
};

std::unique_ptr<TrainLoop> Loop(torch::optim::Optimizer& optimizer,
                                TrainLoopOptions options = {}) {
  auto loop = TrainLoop::Create(optimizer, std::move(options));
  EXPECT_THAT(loop, IsOk());
  return *std::move(loop);
}

absl::StatusOr<StepResult> Step(TrainLoop& loop, Slope& slope, float gradient,
                                int64_t samples = 1) {
  return loop.Step(samples, [&] { return (slope.w * gradient).sum(); });
}

// Regression on 12 points with a hidden layer; the loss is the mean.
struct Regression {
  explicit Regression(torch::ScalarType type = torch::kFloat) {
    torch::manual_seed(3);
    model = torch::nn::Sequential(torch::nn::Linear(3, 5), torch::nn::Tanh(),
                                  torch::nn::Linear(5, 1));
    x = torch::randn({12, 3}).to(type);
    y = x.sum(1, true).sin();
    model->to(type);
  }

  torch::Tensor Loss(int64_t begin, int64_t end) {
    return torch::mse_loss(model->forward(x.slice(0, begin, end)),
                           y.slice(0, begin, end));
  }

  torch::nn::Sequential model;
  torch::Tensor x, y;
};

void ExpectSame(const Regression& a, const Regression& b, double tolerance) {
  const auto left = a.model->parameters();
  const auto right = b.model->parameters();
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    if (tolerance == 0) {
      EXPECT_TRUE(torch::equal(left[i], right[i])) << i;
    } else {
      EXPECT_LE((left[i] - right[i]).abs().max().item<double>(), tolerance)
          << i;
    }
  }
}

TEST(TrainLoopTest, EqualsAHandWrittenLoopBitByBit) {
  Regression plain;
  torch::optim::Adam plain_adam(plain.model->parameters(), 0.01);
  Regression looped;
  torch::optim::Adam looped_adam(looped.model->parameters(), 0.01);
  const auto loop = Loop(looped_adam);
  for (int epoch = 0; epoch < 5; ++epoch) {
    double sum = 0;
    loop->BeginEpoch(epoch, 12);
    for (int64_t begin = 0; begin < 12; begin += 3) {
      plain_adam.zero_grad();
      torch::Tensor loss = plain.Loss(begin, begin + 3);
      loss.backward();
      plain_adam.step();
      sum += loss.item<double>();

      const auto step =
          loop->Step(3, [&] { return looped.Loss(begin, begin + 3); });
      ASSERT_THAT(step, IsOk());
      EXPECT_TRUE(step->stepped);
      EXPECT_EQ(step->loss, loss.item<double>());
    }
    const auto metrics = loop->EndEpoch();
    ASSERT_THAT(metrics, IsOk());
    EXPECT_EQ(*metrics,
              (Metrics{{"loss", sum / 4}, {"lr", 0.01}, {"samples", 12}}));
  }
  ExpectSame(plain, looped, 0);
  EXPECT_EQ(loop->steps(), 20);
}

TEST(TrainLoopTest, AccumulatedBatchesEqualABigOne) {
  Regression big(torch::kDouble);
  torch::optim::SGD big_sgd(big.model->parameters(), 0.1);
  Regression small(torch::kDouble);
  torch::optim::SGD small_sgd(small.model->parameters(), 0.1);
  const auto one = Loop(big_sgd);
  const auto three = Loop(small_sgd, {.accumulate = 3});
  for (int epoch = 0; epoch < 4; ++epoch) {
    one->BeginEpoch(epoch);
    ASSERT_THAT(one->Step(12, [&] { return big.Loss(0, 12); }), IsOk());
    three->BeginEpoch(epoch);
    // Of different sizes.
    ASSERT_FALSE(three->Step(5, [&] { return small.Loss(0, 5); })->stepped);
    ASSERT_FALSE(three->Step(1, [&] { return small.Loss(5, 6); })->stepped);
    ASSERT_TRUE(three->Step(6, [&] { return small.Loss(6, 12); })->stepped);
    EXPECT_NEAR(three->EndEpoch()->at("loss"), one->EndEpoch()->at("loss"),
                1e-12);
  }
  ExpectSame(big, small, 1e-12);
  EXPECT_EQ(three->steps(), 4);
}

// By hand: gradients 2 and 4 make 3, then 8 stands alone: 1 - 3 - 8 = -10.
TEST(TrainLoopTest, WhatIsLeftOfAnEpochMakesAStepToo) {
  Slope slope;
  const auto loop = Loop(slope.sgd, {.accumulate = 2});
  loop->BeginEpoch(0);
  for (const float gradient : {2.0F, 4.0F, 8.0F}) {
    ASSERT_THAT(Step(*loop, slope, gradient), IsOk());
  }
  EXPECT_EQ(slope.value(), -2);
  ASSERT_THAT(loop->EndEpoch(), IsOk());
  EXPECT_EQ(slope.value(), -10);
  EXPECT_FALSE(slope.w.grad().defined());
}

TEST(TrainLoopTest, ClipsByNormAndTellsTheNorm) {
  Slope slope;
  const auto loop = Loop(slope.sgd, {.clip_norm = 0.5});
  loop->BeginEpoch(0);
  EXPECT_EQ(Step(*loop, slope, 0.25)->gradient_norm, 0.25);
  EXPECT_EQ(slope.value(), 0.75);
  EXPECT_EQ(Step(*loop, slope, -4)->gradient_norm, 4);
  EXPECT_NEAR(slope.value(), 1.25, 1e-6);
  EXPECT_EQ(loop->EndEpoch()->at("gradient_norm"), 2.125);
}

TEST(TrainLoopTest, ClipsByValue) {
  Slope slope;
  const auto loop = Loop(slope.sgd, {.clip_value = 0.5});
  loop->BeginEpoch(0);
  const auto step = Step(*loop, slope, 8);
  EXPECT_EQ(step->gradient_norm, std::nullopt);
  EXPECT_EQ(slope.value(), 0.5);
}

// The norm is that of the mean over the accumulated batches.
TEST(TrainLoopTest, ClipsWhatWasAccumulated) {
  Slope slope;
  const auto loop = Loop(slope.sgd, {.accumulate = 2, .clip_norm = 100});
  loop->BeginEpoch(0);
  ASSERT_THAT(Step(*loop, slope, 4, 3), IsOk());
  EXPECT_EQ(Step(*loop, slope, 8, 1)->gradient_norm, 5);
}

template <class Optimizer, class Options>
void ExpectScheduled(const char* name) {
  const torch::Tensor a = torch::ones({1}).set_requires_grad(true);
  const torch::Tensor b = torch::ones({1}).set_requires_grad(true);
  Optimizer optimizer(
      {torch::optim::OptimizerParamGroup({a}, std::make_unique<Options>(1.0)),
       torch::optim::OptimizerParamGroup({b}, std::make_unique<Options>(0.5))},
      Options(1.0));
  const auto loop =
      Loop(optimizer, {.schedule = {.kind = Kind::kExponential, .gamma = 0.5}});
  loop->BeginEpoch(0);
  for (const double factor : {1.0, 0.5, 0.25}) {
    ASSERT_THAT(loop->Step(1, [&] { return (a + b).sum(); }), IsOk());
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), factor) << name;
    EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), factor / 2)
        << name;
  }
  EXPECT_EQ(loop->EndEpoch()->at("lr"), 0.25) << name;
}

TEST(TrainLoopTest, SchedulesEveryGroupOfEveryOptimizer) {
  ExpectScheduled<torch::optim::SGD, torch::optim::SGDOptions>("SGD");
  ExpectScheduled<torch::optim::Adam, torch::optim::AdamOptions>("Adam");
  ExpectScheduled<torch::optim::AdamW, torch::optim::AdamWOptions>("AdamW");
  ExpectScheduled<torch::optim::Adagrad, torch::optim::AdagradOptions>(
      "Adagrad");
  ExpectScheduled<torch::optim::RMSprop, torch::optim::RMSpropOptions>(
      "RMSprop");
}

// lr 1, 0.5, 0.25 by epoch; gradient 1: 1 - 2 (1 + 0.5 + 0.25) = -2.5.
TEST(TrainLoopTest, SchedulesByEpochToo) {
  Slope slope;
  const auto loop =
      Loop(slope.sgd, {.schedule = {.kind = Kind::kExponential, .gamma = 0.5},
                       .schedule_unit = ScheduleUnit::kEpoch});
  for (int epoch = 0; epoch < 3; ++epoch) {
    loop->BeginEpoch(epoch);
    ASSERT_THAT(Step(*loop, slope, 1), IsOk());
    ASSERT_THAT(Step(*loop, slope, 1), IsOk());
    ASSERT_THAT(loop->EndEpoch(), IsOk());
  }
  EXPECT_EQ(slope.value(), -2.5);
}

TEST(TrainLoopTest, AConstantScheduleLeavesTheOptimizersOwnRate) {
  Slope slope;
  const auto loop = Loop(slope.sgd);
  slope.sgd.param_groups()[0].options().set_lr(0.25);
  loop->BeginEpoch(0);
  ASSERT_THAT(Step(*loop, slope, 1), IsOk());
  EXPECT_EQ(slope.value(), 0.75);
}

TEST(TrainLoopTest, ALossThatIsNotFiniteIsAnError) {
  Slope slope;
  const auto loop = Loop(slope.sgd);
  loop->BeginEpoch(3);
  ASSERT_THAT(Step(*loop, slope, 0.5), IsOk());
  EXPECT_THAT(
      Step(*loop, slope, std::nanf("")),
      StatusIs(absl::StatusCode::kAborted,
               AllOf(HasSubstr("epoch 4, after 1 steps: the loss is nan"),
                     HasSubstr("a learning rate below 1"))));
  EXPECT_EQ(slope.value(), 0.5);
  EXPECT_FALSE(slope.w.grad().defined());
}

// sqrt(w - 1) at w = 1 is 0, and its gradient infinite.
TEST(TrainLoopTest, AGradientThatIsNotFiniteIsAnErrorWhereOneLooks) {
  for (const TrainLoopOptions& options :
       {TrainLoopOptions{.clip_norm = 1}, TrainLoopOptions{.clip_value = 1},
        TrainLoopOptions{.loss_scaler =
                             LossScalerOptions{.initial_scale = 1}}}) {
    Slope slope;
    const auto loop = Loop(slope.sgd, options);
    loop->BeginEpoch(0);
    EXPECT_THAT(loop->Step(1, [&] { return (slope.w - 1).sqrt().sum(); }),
                StatusIs(absl::StatusCode::kAborted,
                         HasSubstr("a gradient is not finite")));
    EXPECT_EQ(slope.value(), 1);
  }
}

// Two batches make a step; the one with the NaN takes its neighbour with it.
TEST(TrainLoopTest, SkipsAStepIfAsked) {
  Slope slope;
  const auto loop =
      Loop(slope.sgd, {.accumulate = 2,
                       .on_non_finite = OnNonFinite::kSkip,
                       .schedule = {.kind = Kind::kExponential, .gamma = 0.5}});
  loop->BeginEpoch(0);
  ASSERT_THAT(Step(*loop, slope, 0.5), IsOk());
  const auto skipped = Step(*loop, slope, std::nanf(""));
  ASSERT_THAT(skipped, IsOk());
  EXPECT_TRUE(skipped->skipped);
  EXPECT_FALSE(skipped->stepped);
  EXPECT_EQ(slope.value(), 1);
  ASSERT_THAT(Step(*loop, slope, 0.25), IsOk());
  ASSERT_THAT(Step(*loop, slope, 0.75), IsOk());
  EXPECT_EQ(slope.value(), 0.5);  // The schedule counts steps taken.
  EXPECT_EQ(
      *loop->EndEpoch(),
      (Metrics{
          {"loss", 0.5}, {"lr", 1}, {"samples", 4}, {"skipped_steps", 1}}));
}

TEST(TrainLoopTest, WhatAnEpochThatWasLeftHadWaitingIsNotTheNextOnes) {
  Slope slope;
  const auto loop = Loop(slope.sgd, {.accumulate = 2});
  loop->BeginEpoch(0);
  ASSERT_THAT(Step(*loop, slope, std::nanf("")), IsOk());
  loop->BeginEpoch(0);
  ASSERT_THAT(Step(*loop, slope, 0.25), IsOk());
  const auto step = Step(*loop, slope, 0.75);
  ASSERT_THAT(step, IsOk());
  EXPECT_TRUE(step->stepped);
  EXPECT_EQ(slope.value(), 0.5);
}

// A scale that is a power of two changes exponents only.
TEST(TrainLoopTest, AScaledLossGivesTheSameSteps) {
  Regression plain;
  torch::optim::SGD plain_sgd(plain.model->parameters(), 0.1);
  Regression scaled;
  torch::optim::SGD scaled_sgd(scaled.model->parameters(), 0.1);
  const auto one = Loop(plain_sgd);
  const auto other =
      Loop(scaled_sgd, {.loss_scaler = LossScalerOptions{
                            .initial_scale = 1024, .growth_interval = 4}});
  one->BeginEpoch(0);
  other->BeginEpoch(0);
  for (int i = 0; i < 10; ++i) {
    ASSERT_THAT(one->Step(12, [&] { return plain.Loss(0, 12); }), IsOk());
    ASSERT_THAT(other->Step(12, [&] { return scaled.Loss(0, 12); }), IsOk());
  }
  ExpectSame(plain, scaled, 0);
  EXPECT_EQ(other->loss_scale(), 4096);
}

// 3e38 is the largest float32; 4 * 1e38 is too much, 2 * 1e38 is not.
TEST(TrainLoopTest, TheScalerBacksOffWhereGradientsOverflow) {
  Slope slope(/*lr=*/1e-38);
  const auto loop =
      Loop(slope.sgd, {.loss_scaler = LossScalerOptions{.initial_scale = 4}});
  loop->BeginEpoch(0);
  EXPECT_TRUE(Step(*loop, slope, 1e38)->skipped);
  EXPECT_EQ(slope.value(), 1);
  EXPECT_EQ(loop->loss_scale(), 2);
  EXPECT_TRUE(Step(*loop, slope, 1e38)->stepped);
  EXPECT_NEAR(slope.value(), 0, 1e-6);
}

TEST(TrainLoopTest, TrainsInBfloat16WithWeightsInFloat32) {
  Regression regression;
  torch::optim::Adam adam(regression.model->parameters(), 0.02);
  const auto loop = Loop(adam, {.precision = Precision::kBfloat16});
  double first = 0, last = 0;
  for (int epoch = 0; epoch < 40; ++epoch) {
    loop->BeginEpoch(epoch);
    const auto step = loop->Step(12, [&] {
      const torch::Tensor y = regression.model->forward(regression.x);
      EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
      return torch::mse_loss(y, regression.y);
    });
    ASSERT_THAT(step, IsOk());
    (epoch == 0 ? first : last) = step->loss;
  }
  EXPECT_LT(last, first / 4);
  for (const torch::Tensor& parameter : regression.model->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
  }
}

TEST(TrainLoopTest, ASavedStateGoesOn) {
  const TrainLoopOptions options = {
      .loss_scaler =
          LossScalerOptions{.initial_scale = 4, .growth_interval = 3},
      .schedule = {.kind = Kind::kLinear, .total_steps = 8}};
  const auto train = [](TrainLoop& loop, Slope& slope, int epoch) {
    loop.BeginEpoch(epoch);
    for (int i = 0; i < 4; ++i) {
      ASSERT_THAT(Step(loop, slope, 0.5), IsOk());
    }
    ASSERT_THAT(loop.EndEpoch(), IsOk());
  };
  Slope whole;
  const auto uninterrupted = Loop(whole.sgd, options);
  train(*uninterrupted, whole, 0);
  const auto bytes = uninterrupted->SaveState();
  ASSERT_THAT(bytes, IsOk());
  const double half_way = whole.value();
  const double lr_then = uninterrupted->lr();
  train(*uninterrupted, whole, 1);

  // As a restored optimizer, with the learning rate of the last step.
  Slope resumed(lr_then);
  {
    const torch::NoGradGuard no_grad;
    resumed.w.fill_(half_way);
  }
  const auto loop = Loop(resumed.sgd, options);
  ASSERT_THAT(loop->RestoreState(*bytes), IsOk());
  EXPECT_EQ(loop->steps(), 4);
  train(*loop, resumed, 1);
  EXPECT_EQ(resumed.value(), whole.value());
  EXPECT_EQ(loop->loss_scale(), uninterrupted->loss_scale());
  EXPECT_EQ(loop->lr(), uninterrupted->lr());
}

TEST(TrainLoopTest, RefusesAStateThatIsNotItsOwn) {
  Slope slope;
  const auto loop = Loop(slope.sgd);
  EXPECT_THAT(loop->RestoreState("no state"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not the bytes of a SaveState")));
  Slope other;
  const auto scaled = Loop(other.sgd, {.loss_scaler = LossScalerOptions()});
  EXPECT_THAT(loop->RestoreState(*scaled->SaveState()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("with a loss scaler")));
  const torch::Tensor a = torch::ones({1}), b = torch::ones({1});
  torch::optim::SGD groups({torch::optim::OptimizerParamGroup({a}),
                            torch::optim::OptimizerParamGroup({b})},
                           torch::optim::SGDOptions(1));
  EXPECT_THAT(loop->RestoreState(*Loop(groups)->SaveState()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2 parameter groups; this one has 1")));
  const auto accumulates = Loop(slope.sgd, {.accumulate = 2});
  accumulates->BeginEpoch(0);
  ASSERT_THAT(Step(*accumulates, slope, 1), IsOk());
  EXPECT_THAT(accumulates->SaveState(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("1 batches wait")));
}

// Gradient 0 and FedProx's term: half of the way back to the center, 1.
TEST(TrainLoopTest, GradientsMayBeAdjusted) {
  torch::nn::Linear model(torch::nn::LinearOptions(1, 1).bias(false));
  const auto set = [&](float value) {
    const torch::NoGradGuard no_grad;
    model->weight.fill_(value);
  };
  set(1);
  ProximalTerm proximal(5);
  proximal.SetCenter(*model);
  set(3);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  const auto loop = Loop(sgd, {.clip_norm = 100});
  loop->set_adjust_gradients([&] { return proximal.AddGradient(*model); });
  loop->BeginEpoch(0);
  const auto step = loop->Step(1, [&] { return (model->weight * 0).sum(); });
  ASSERT_THAT(step, IsOk());
  EXPECT_EQ(step->gradient_norm, 10);  // Complete when it is measured.
  EXPECT_NEAR(model->weight.item<double>(), 2, 1e-6);
}

TEST(TrainLoopTest, TellsItsProgress) {
  Slope slope;
  const auto loop = Loop(slope.sgd);
  loop->BeginEpoch(1, 6);
  ASSERT_THAT(Step(*loop, slope, 0.5, 2), IsOk());
  loop->Average(2, {{"accuracy", 0.75}});
  const Progress progress = loop->Now();
  EXPECT_EQ(progress.epoch, 1);
  EXPECT_EQ(progress.samples_done, 2);
  EXPECT_EQ(progress.samples, 6);
  EXPECT_EQ(progress.metrics, (Metrics{{"accuracy", 0.75}, {"loss", 0.5}}));
}

TEST(TrainLoopTest, RefusesWhatCannotBe) {
  Slope slope;
  const std::pair<TrainLoopOptions, const char*> cases[] = {
      {{.accumulate = 0}, "accumulate is 0"},
      {{.clip_norm = -1}, "clip_norm is -1"},
      {{.clip_value = std::numeric_limits<double>::infinity()},
       "clip_value is inf"},
      {{.loss_scaler = LossScalerOptions{.growth_factor = 0.5}},
       "growth_factor is 0.5"},
      {{.schedule = {.kind = Kind::kCosine}}, "total_steps is 0"},
  };
  for (const auto& [options, message] : cases) {
    EXPECT_THAT(
        TrainLoop::Create(slope.sgd, options),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
  EXPECT_THAT(TrainLoop::Create(slope.sgd, {.precision = Precision::kFloat16}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("float16 needs a model on a CUDA device")));
  torch::optim::LBFGS lbfgs({slope.w}, torch::optim::LBFGSOptions(1));
  EXPECT_THAT(TrainLoop::Create(lbfgs, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("LBFGS")));
}

TEST(TrainLoopTest, RefusesCallsThatCannotBe) {
  Slope slope;
  const auto loop = Loop(slope.sgd);
  EXPECT_THAT(Step(*loop, slope, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("call BeginEpoch first")));
  EXPECT_THAT(loop->EndEpoch(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("without BeginEpoch")));
  loop->BeginEpoch(0);
  EXPECT_THAT(Step(*loop, slope, 1, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a batch of 0 samples")));
  EXPECT_THAT(loop->Step(1, [&] { return torch::ones({2}) * slope.w; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("must be a scalar")));
}

}  // namespace
}  // namespace miniray::train
