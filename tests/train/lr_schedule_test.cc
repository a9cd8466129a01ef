// Expected values: worked out by hand; those of half cosines with Python's math
// from the formulas of PyTorch's documentation.

#include "train/lr_schedule.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::train {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Kind = LrSchedule::Kind;

std::vector<double> Factors(const LrSchedule& schedule, int steps) {
  EXPECT_TRUE(Validate(schedule).ok()) << Validate(schedule);
  std::vector<double> factors;
  for (int step = 0; step < steps; ++step) {
    factors.push_back(LrFactor(schedule, step));
  }
  return factors;
}

TEST(LrScheduleTest, Constant) {
  EXPECT_THAT(Factors({}, 3), ElementsAre(1, 1, 1));
}

TEST(LrScheduleTest, StepFallsEveryStepSize) {
  EXPECT_THAT(Factors({.kind = Kind::kStep, .gamma = 0.5, .step_size = 2}, 6),
              ElementsAre(1, 1, 0.5, 0.5, 0.25, 0.25));
}

TEST(LrScheduleTest, MultiStepFallsAtItsMilestones) {
  EXPECT_THAT(
      Factors({.kind = Kind::kMultiStep, .gamma = 0.5, .milestones = {1, 4}},
              6),
      ElementsAre(1, 0.5, 0.5, 0.5, 0.25, 0.25));
}

TEST(LrScheduleTest, Exponential) {
  EXPECT_THAT(Factors({.kind = Kind::kExponential, .gamma = 0.5}, 4),
              ElementsAre(1, 0.5, 0.25, 0.125));
}

TEST(LrScheduleTest, LinearEndsAndStays) {
  EXPECT_THAT(Factors({.kind = Kind::kLinear, .total_steps = 4}, 7),
              ElementsAre(1, 0.75, 0.5, 0.25, 0, 0, 0));
  EXPECT_THAT(
      Factors({.kind = Kind::kLinear, .total_steps = 2, .end_factor = 0.5}, 4),
      ElementsAre(1, 0.75, 0.5, 0.5));
}

TEST(LrScheduleTest, CosineEndsAndStays) {
  EXPECT_THAT(
      Factors({.kind = Kind::kCosine, .total_steps = 4, .end_factor = 0.1}, 6),
      Pointwise(DoubleNear(1e-15), {1.0, 0.8681980515339464, 0.55,
                                    0.23180194846605365, 0.1, 0.1}));
}

// As torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10): up until
// step 2, down until step 9.
TEST(LrScheduleTest, OneCycleGoesUpAndDown) {
  EXPECT_THAT(
      Factors({.kind = Kind::kOneCycle, .total_steps = 10}, 12),
      Pointwise(DoubleNear(1e-15),
                {0.04, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631,
                 0.6112620219362893, 0.38874197806371075, 0.18825834605023697,
                 0.049519367986526286, 4e-6, 4e-6, 4e-6}));
}

TEST(LrScheduleTest, WarmUpComesBeforeAnyOfThem) {
  EXPECT_THAT(Factors({.kind = Kind::kExponential,
                       .gamma = 0.5,
                       .warmup_steps = 4,
                       .warmup_start = 0.5},
                      7),
              ElementsAre(0.5, 0.625, 0.75, 0.875, 1, 0.5, 0.25));
  EXPECT_THAT(Factors({.warmup_steps = 2}, 4), ElementsAre(0, 0.5, 1, 1));
}

TEST(LrScheduleTest, RefusesWhatCannotBe) {
  const std::pair<LrSchedule, const char*> cases[] = {
      {{.kind = Kind::kStep, .gamma = 0}, "gamma is 0"},
      {{.kind = Kind::kStep, .step_size = 0}, "step_size is 0"},
      {{.kind = Kind::kMultiStep, .milestones = {3, 3}}, "more than 3"},
      {{.kind = Kind::kLinear}, "total_steps is 0; expected 1"},
      {{.kind = Kind::kCosine, .total_steps = 5, .end_factor = -1},
       "end_factor is -1"},
      {{.kind = Kind::kOneCycle, .total_steps = 2}, "total_steps is 2"},
      {{.kind = Kind::kOneCycle, .total_steps = 3, .peak = 0.3}, "peak is 0.3"},
      {{.kind = Kind::kOneCycle, .total_steps = 9, .div_factor = 0.5},
       "div_factor is 0.5"},
      {{.warmup_steps = -1}, "warmup_steps is -1"},
      {{.warmup_steps = 1, .warmup_start = 2}, "warmup_start is 2"},
  };
  for (const auto& [schedule, message] : cases) {
    const absl::Status status = Validate(schedule);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

TEST(LrScheduleTest, ComesFromAConfig) {
  EXPECT_EQ(*LrScheduleFromConfig({}), LrSchedule());
  const auto schedule = LrScheduleFromConfig({{"lr_schedule", "cosine"},
                                              {"lr_total_steps", 100},
                                              {"lr_end_factor", 0.01},
                                              {"lr_warmup_steps", 10},
                                              {"lr", 0.5}});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(*schedule, (LrSchedule{.kind = Kind::kCosine,
                                   .total_steps = 100,
                                   .end_factor = 0.01,
                                   .warmup_steps = 10}));
  EXPECT_THAT(
      LrScheduleFromConfig({{"lr_schedule", "cosin"}}).status().message(),
      HasSubstr("'cosin'"));
  EXPECT_THAT(
      LrScheduleFromConfig({{"lr_schedule", "cosine"}}).status().message(),
      HasSubstr("total_steps is 0"));
}

}  // namespace
}  // namespace miniray::train
