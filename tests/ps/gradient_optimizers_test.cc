// sgd, adam, adamw and adagrad. The numbers are what a few lines of Python give
// that follow the formulas of the headers in floats of 64 bits, from w = (1,
// -2), with the gradients below; torch_optim_test.cc compares with LibTorch.

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/gradient_strategy.h"
#include "tests/ps/strategy_testutil.h"

namespace miniray::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

NamedTensors Start() { return {{"w", Floats({1, -2})}}; }

std::vector<Contribution> Gradient(int round) {
  if (round == 0) return Workers({{0.5, -1}});
  if (round == 1) return Workers({{-0.25, 0.75}});
  return Workers({{2, 0.125}});
}

MATCHER(IsClose, "") {
  return std::fabs(std::get<0>(arg) - std::get<1>(arg)) <= 3e-7;
}

std::unique_ptr<SyncStrategy> Started(absl::string_view name,
                                      const StrategyOptions& options = {}) {
  auto strategy = Create(name, options);
  strategy->Reset(Start());
  return strategy;
}

void ExpectRounds(absl::string_view name, const StrategyOptions& options,
                  const std::vector<std::vector<double>>& expected) {
  const auto strategy = Started(name, options);
  EXPECT_TRUE(strategy->UsesStart());
  EXPECT_TRUE(strategy->TakesGradients());
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(AggregateValues(*strategy, Gradient(round)),
                Pointwise(IsClose(), expected[static_cast<size_t>(round)]))
        << name << ", round " << round;
  }
}

TEST(SgdTest, MatchesTheFormula) {
  ExpectRounds("sgd", {},
               {{0.995, -1.99}, {0.9975, -1.9975}, {0.9775, -1.99875}});
  ExpectRounds("sgd",
               {{"lr", 0.5},
                {"momentum", 0.5},
                {"dampening", 0.25},
                {"weight_decay", 0.125}},
               {{0.6875, -1.375},
                {0.5927734375, -1.279296875},
                {-0.2323760986328125, -1.218353271484375}});
  ExpectRounds("sgd",
               {{"lr", 0.5},
                {"momentum", 0.5},
                {"weight_decay", 0.125},
                {"nesterov", true}},
               {{0.53125, -1.0625},
                {0.5908203125, -1.369140625},
                {-0.980682373046875, -1.33355712890625}});
}

TEST(SgdTest, RemembersNothingWithoutMomentum) {
  const auto plain = Started("sgd");
  AggregateModel(*plain, Gradient(0));
  EXPECT_THAT(plain->SaveState()->tensors, IsEmpty());
  const auto heavy = Started("sgd", {{"momentum", 0.5}});
  AggregateModel(*heavy, Gradient(0));
  EXPECT_EQ(heavy->SaveState()->tensors.front().first, "v/w");
}

TEST(AdamTest, MatchesTheFormula) {
  ExpectRounds("adam", {},
               {{0.99900000002, -1.9990000000099999},
                {0.9987336629870784, -1.9989106750036052},
                {0.9980630153452915, -1.998905585725409}});
  ExpectRounds("adam",
               {{"lr", 0.25},
                {"beta1", 0.5},
                {"beta2", 0.75},
                {"eps", 0.125},
                {"weight_decay", 0.5}},
               {{0.7777777777777778, -1.7647058823529411},
                {0.6426522732105046, -1.6334755835989563},
                {0.424730582048142, -1.4854313932845888}});
}

TEST(AdamWTest, MatchesTheFormula) {
  ExpectRounds("adamw", {},
               {{0.99899000002, -1.99898000001},
                {0.9987136730870784, -1.9988706852036053},
                {0.9980330383085606, -1.9988456072185572}});
  ExpectRounds("adamw",
               {{"lr", 0.25},
                {"beta1", 0.5},
                {"beta2", 0.75},
                {"eps", 0.125},
                {"weight_decay", 0.5}},
               {{0.675, -1.5277777777777777},
                {0.590625, -1.3788495500965163},
                {0.32252113101820223, -1.2521290202422657}});
}

TEST(AdagradTest, MatchesTheFormula) {
  ExpectRounds("adagrad", {},
               {{0.990000000002, -1.990000000001},
                {0.9944721359561995, -1.99600000000052},
                {0.9848412677098017, -1.9969950371906509}});
  ExpectRounds("adagrad",
               {{"lr", 0.5},
                {"lr_decay", 0.25},
                {"weight_decay", 0.5},
                {"initial_accumulator_value", 0.25},
                {"eps", 0.125}},
               {{0.5977583843038401, -1.5426591143182098},
                {0.5820428902044806, -1.5387573597850432},
                {0.29652948319481187, -1.4447568442728782}});
}

// The learning rate of one step is smaller; the moments are as ever.
TEST(GradientOptimizersTest, OneStepCanBeSmaller) {
  const std::vector<std::vector<double>> expected = {
      {0.625000005, -1.5000000025},
      {0.588822690286154, -1.4475421895222096},
      {0.34755794355365166, -1.2653270962829055}};
  const auto strategy = Started("adamw", {{"lr", 0.25}, {"weight_decay", 0.5}});
  auto* const optimizer = dynamic_cast<GradientStrategy*>(strategy.get());
  ASSERT_NE(optimizer, nullptr);
  for (int round = 0; round < 3; ++round) {
    const auto weights =
        optimizer->Step(Gradient(round), round == 1 ? 0.25 : 1);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_THAT(Values((*weights)[0].second),
                Pointwise(IsClose(), expected[static_cast<size_t>(round)]));
  }
}

TEST(GradientOptimizersTest, OptionsHaveRanges) {
  for (const char* name : {"sgd", "adam", "adamw", "adagrad"}) {
    EXPECT_THAT(CreateError(name, {{"lr", 0}}),
                HasSubstr("option 'lr' must be above 0, got 0"));
    EXPECT_THAT(CreateError(name, {{"weight_decay", -1}}),
                HasSubstr("'weight_decay' must be of at least 0, got -1"));
  }
  EXPECT_THAT(CreateError("sgd", {{"momentum", 1}}),
              HasSubstr("must be in [0, 1), got 1"));
  EXPECT_THAT(CreateError("sgd", {{"nesterov", 1}}),
              HasSubstr("option 'nesterov' must be of type bool"));
  EXPECT_THAT(CreateError("sgd", {{"nesterov", true}}),
              HasSubstr("nesterov needs momentum above 0"));
  EXPECT_THAT(
      CreateError("sgd",
                  {{"nesterov", true}, {"momentum", 0.9}, {"dampening", 0.5}}),
      HasSubstr("got momentum 0.9 and dampening 0.5"));
  for (const char* name : {"adam", "adamw"}) {
    EXPECT_THAT(CreateError(name, {{"beta2", 1}}),
                HasSubstr("must be in [0, 1), got 1"));
    EXPECT_THAT(CreateError(name, {{"eps", 0}}),
                HasSubstr("option 'eps' must be above 0, got 0"));
  }
  EXPECT_THAT(CreateError("adagrad", {{"lr_decay", -0.5}}),
              HasSubstr("must be of at least 0, got -0.5"));
  EXPECT_THAT(CreateError("dp", {{"inner", "adam"}}),
              HasSubstr("takes gradients, and must be one that takes weights"));
}

TEST(GradientOptimizersTest, TheRegistryKnowsThem) {
  EXPECT_THAT(StrategyRegistry::Get().NamesTaking(/*gradients=*/true),
              ElementsAre("adagrad", "adam", "adamw", "sgd"));
  EXPECT_THAT(StrategyRegistry::Get().NamesTaking(/*gradients=*/false),
              ::testing::AllOf(::testing::Contains("average"),
                               ::testing::Not(::testing::Contains("adam"))));
}

class EachGradientOptimizerTest : public ::testing::TestWithParam<const char*> {
 protected:
  // With all that it can remember.
  static StrategyOptions Options() {
    if (std::string(GetParam()) != "sgd") return {};
    return {{"momentum", 0.5}};
  }
};

TEST_P(EachGradientOptimizerTest, StepsByTheMeanOfTheWorkersGradients) {
  const auto one = Started(GetParam(), Options());
  const auto three = Started(GetParam(), Options());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(AggregateValues(*one, Workers({{2, -1}})),
              AggregateValues(*three, Workers({{1, -2}, {4, 0}, {1, -1}})));
  }
}

TEST_P(EachGradientOptimizerTest, BuffersAreAveragedAndCountersNeverFall) {
  const auto strategy = Create(GetParam(), Options());
  const auto model = [](float w, float var, int64_t n) {
    return NamedTensors{{"w", Floats({w})},
                        {"bn.running_var", Floats({var})},
                        {"bn.num_batches_tracked", Ints({n})}};
  };
  strategy->Reset(model(1, 100, 7));
  auto result = AggregateModel(
      *strategy, Contributions({model(0.5, 1, 5), model(0.5, 2, 6)}));
  EXPECT_LT(Values(result[0].second)[0], 1);
  EXPECT_THAT(Values(result[1].second), ElementsAre(1.5));
  EXPECT_THAT(Values(result[2].second), ElementsAre(7));
  result = AggregateModel(*strategy, Contributions({model(0.5, 1, 9)}));
  EXPECT_THAT(Values(result[2].second), ElementsAre(9));
}

TEST_P(EachGradientOptimizerTest, NeedsAStart) {
  const auto strategy = Create(GetParam(), Options());
  EXPECT_EQ(strategy->Aggregate(Gradient(0)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(EachGradientOptimizerTest, ResetForgetsTheStepsTaken) {
  const auto strategy = Started(GetParam(), Options());
  const auto first = AggregateValues(*strategy, Gradient(0));
  AggregateValues(*strategy, Gradient(1));
  strategy->Reset(Start());
  EXPECT_EQ(AggregateValues(*strategy, Gradient(0)), first);
}

TEST_P(EachGradientOptimizerTest, EveryFloatTypeTakesTheSameSteps) {
  const auto run = [&](at::ScalarType type) {
    const auto strategy = Create(GetParam(), Options());
    strategy->Reset({{"w", Floats({1, -2}).to(type)}});
    NamedTensors result;
    for (int round = 0; round < 3; ++round) {
      auto contributions = Gradient(round);
      at::Tensor& gradient = contributions[0].tensors[0].second;
      gradient = gradient.to(type);
      result = AggregateModel(*strategy, contributions);
    }
    EXPECT_EQ(result[0].second.scalar_type(), type);
    return Values(result[0].second);
  };
  const auto expected = run(at::kDouble);
  for (const auto& [type, tolerance] :
       {std::pair(at::kFloat, 1e-6), std::pair(at::kHalf, 4e-3),
        std::pair(at::kBFloat16, 3e-2)}) {
    const auto result = run(type);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(result[i], expected[i], tolerance) << type;
    }
  }
}

TEST_P(EachGradientOptimizerTest, AnotherModelIsAnErrorThatChangesNothing) {
  const auto strategy = Started(GetParam(), Options());
  EXPECT_EQ(strategy->Aggregate(Workers({{1, 2, 3}})).status().message(),
            "worker 0: 'w' is Float [3], expected Float [2] as in the server's "
            "weights");
  const auto other = Started(GetParam(), Options());
  EXPECT_EQ(AggregateValues(*strategy, Gradient(0)),
            AggregateValues(*other, Gradient(0)));
}

TEST_P(EachGradientOptimizerTest, AnAbsurdGradientStopsNothing) {
  const auto strategy = Started(GetParam(), Options());
  const float largest = std::numeric_limits<float>::max();
  ASSERT_TRUE(strategy->Aggregate(Workers({{largest, -largest}})).ok());
  const auto state = strategy->SaveState();
  ASSERT_FALSE(state->tensors.empty());
  for (const auto& [name, tensor] : state->tensors) {
    EXPECT_TRUE(std::isfinite(Values(tensor)[0])) << name;
  }
}

TEST_P(EachGradientOptimizerTest, AForeignStateIsRefused) {
  const auto saved = Started(GetParam(), Options());
  ASSERT_TRUE(saved->Aggregate(Gradient(0)).ok());
  const StrategyState state = *saved->SaveState();
  const auto restored = Create(GetParam(), Options());
  EXPECT_THAT(
      std::string(
          restored->RestoreState(state, {{"w", Floats({1, 2, 3})}}).message()),
      HasSubstr("is not of the shape"));
  EXPECT_THAT(
      std::string(restored->RestoreState({.tensors = state.tensors}, Start())
                      .message()),
      HasSubstr("how many steps"));
}

INSTANTIATE_TEST_SUITE_P(All, EachGradientOptimizerTest,
                         ::testing::Values("sgd", "adam", "adamw", "adagrad"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace miniray::ps
