// fedavgm, fedadam, fedyogi, fedadagrad and diloco. The numbers are what a few
// lines of Python give that follow the papers' formulas in floats of 64 bits:
//
//   def adam(w, d, s, lr, b1, b2, tau):    # d: mean of the workers - w
//     s.m = b1*s.m + (1-b1)*d              # s.m = 0, s.v = tau**2 at first
//     s.v = b2*s.v + (1-b2)*d*d            # yogi: s.v -
//     (1-b2)*d*d*sign(s.v-d*d) return w + lr*s.m/(sqrt(s.v)+tau)    # adagrad:
//     s.v + d*d
//   def avgm(w, d, s, lr, mom): s.v = mom*s.v + d;  return w + lr*s.v
//   def nesterov(w, d, s, lr, mom):        # torch.optim.SGD(nesterov=True)
//     g = -d;  s.v = mom*s.v + g;  return w - lr*(g + mom*s.v)
//
// from w = (1, -2), with the two workers of Round(0), Round(1), Round(2).

#include <cmath>
#include <limits>

#include "ATen/ops/complex.h"
#include "ATen/ops/imag.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/strategy_testutil.h"

namespace miniray::ps {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

NamedTensors Start() { return {{"w", Floats({1, -2})}}; }

std::vector<Contribution> Round(int round) {
  if (round == 0) return Workers({{2, -1}, {4, -2}});
  if (round == 1) return Workers({{0, -3}, {1, -1}});
  return Workers({{5, 0}, {5, 1}});
}

MATCHER(IsClose, "") {
  return std::fabs(std::get<0>(arg) - std::get<1>(arg)) <= 1e-6;
}

void ExpectRounds(absl::string_view name, const StrategyOptions& options,
                  const std::vector<std::vector<double>>& expected) {
  const auto strategy = Create(name, options);
  EXPECT_TRUE(strategy->UsesStart());
  strategy->Reset(Start());
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(AggregateValues(*strategy, Round(round)),
                Pointwise(IsClose(), expected[static_cast<size_t>(round)]))
        << name << ", round " << round;
  }
}

TEST(FedAvgMTest, ByDefaultIsTheAverage) {
  ExpectRounds("fedavgm", {}, {{3, -1.5}, {0.5, -2}, {5, 0.5}});
}

TEST(FedAvgMTest, HasMomentum) {
  ExpectRounds("fedavgm", {{"lr", 0.5}, {"momentum", 0.5}},
               {{2, -1.75}, {1.75, -1.75}, {3.25, -0.625}});
}

TEST(DiLoCoTest, IsNesterovOnTheServer) {
  ExpectRounds("diloco", {},
               {{3.66, -1.335}, {0.5912, -1.93595}, {5.683784, 1.1819585}});
  ExpectRounds("diloco", {{"lr", 0.5}, {"momentum", 0.5}},
               {{2.5, -1.625}, {1.25, -1.84375}, {3.9375, -0.1015625}});
}

TEST(FedAdamTest, MatchesTheFormula) {
  ExpectRounds("fedadam", {},
               {{1.0995012623676585, -1.9019798098790515},
                {1.1569870345873503, -1.8339189844468735},
                {1.269547389897656, -1.7233739340423118}});
  ExpectRounds("fedadam",
               {{"lr", 0.5}, {"beta1", 0.5}, {"beta2", 0.75}, {"tau", 0.25}},
               {{1.3927208109125364, -1.7847495629784698},
                {1.4143119605175276, -1.7691237692493647},
                {1.8208297500375068, -1.365175285002604}});
}

TEST(FedYogiTest, MatchesTheFormula) {
  ExpectRounds("fedyogi", {},
               {{1.0099501249992187, -1.99019800019996},
                {1.016170191871947, -1.981566733218271},
                {1.0276114749059932, -1.970243438486702}});
  ExpectRounds("fedyogi",
               {{"lr", 0.5}, {"beta1", 0.5}, {"beta2", 0.75}, {"tau", 0.25}},
               {{1.3903882032022077, -1.7928932188134525},
                {1.4136173694270813, -1.7746578058956035},
                {1.814653929297696, -1.3750586615367788}});
}

// v > delta^2: 0.25 against 0.04 and 0.0025.
TEST(FedYogiTest, LetsVShrinkSlowly) {
  const auto yogi = Create(
      "fedyogi", {{"lr", 0.5}, {"beta1", 0.5}, {"beta2", 0.75}, {"tau", 0.5}});
  yogi->Reset(Start());
  EXPECT_THAT(AggregateValues(*yogi, Workers({{1.1f, -2.05f}, {1.3f, -2.05f}})),
              ElementsAre(DoubleNear(1.050510257216822, 1e-6),
                          DoubleNear(-2.0125078222809103, 1e-6)));
}

TEST(FedAdagradTest, MatchesTheFormula) {
  ExpectRounds("fedadagrad", {},
               {{1.0099950012499999, -1.99001998000002},
                {1.016241998894971, -1.981238909129553},
                {1.027706154907553, -1.9698759435813984}});
  ExpectRounds("fedadagrad", {{"lr", 0.5}, {"beta1", 0}, {"tau", 0.1}},
               {{1.4756246098625196, -1.5900980486407215},
                {1.2660399886102023, -1.861832680600245},
                {1.6857834189209766, -1.3988680168169405}});
}

TEST(ServerOptimizersTest, OptionsHaveRanges) {
  for (const char* name :
       {"fedavgm", "fedadam", "fedyogi", "fedadagrad", "diloco"}) {
    EXPECT_THAT(CreateError(name, {{"lr", 0}}),
                HasSubstr("option 'lr' must be above 0, got 0"));
  }
  for (const char* name : {"fedavgm", "diloco"}) {
    EXPECT_THAT(CreateError(name, {{"momentum", 1}}),
                HasSubstr("must be in [0, 1), got 1"));
  }
  for (const char* name : {"fedadam", "fedyogi", "fedadagrad"}) {
    EXPECT_THAT(CreateError(name, {{"beta1", 1}}),
                HasSubstr("must be in [0, 1), got 1"));
    EXPECT_THAT(CreateError(name, {{"tau", 0}}),
                HasSubstr("option 'tau' must be above 0, got 0"));
  }
  EXPECT_THAT(CreateError("fedadagrad", {{"beta2", 0.9}}),
              HasSubstr("unknown option 'beta2'"));
}

class EachServerOptimizerTest : public ::testing::TestWithParam<const char*> {};

// The stated rule: adaptive rules act on parameters only.
TEST_P(EachServerOptimizerTest, BuffersAreAveragedAndCountersTheMaximum) {
  const auto strategy = Create(GetParam());
  const auto model = [](float w, float var, int64_t n) {
    return NamedTensors{{"w", Floats({w})},
                        {"bn.running_var", Floats({var})},
                        {"bn.num_batches_tracked", Ints({n})}};
  };
  strategy->Reset(model(1, 100, 0));
  for (int round = 0; round < 3; ++round) {
    const auto result = AggregateModel(
        *strategy, Contributions({model(2, 1, 5), model(3, 2, 8)}));
    EXPECT_NE(Values(result[0].second)[0], 1);
    EXPECT_THAT(Values(result[1].second), ElementsAre(1.5));
    EXPECT_THAT(Values(result[2].second), ElementsAre(8));
    EXPECT_EQ(result[2].second.scalar_type(), at::kLong);
  }
}

// What the worker says of a tensor counts, whatever its name.
TEST_P(EachServerOptimizerTest, BuffersMayBeNamed) {
  const auto strategy = Create(GetParam(), {{"lr", 0.125}});
  strategy->Reset({{"w", Floats({1})}, {"scale", Floats({1})}});
  auto contributions =
      Contributions({{{"w", Floats({2})}, {"scale", Floats({2})}}});
  contributions[0].info = std::make_shared<const std::vector<TensorInfo>>(
      std::vector<TensorInfo>{{}, {.is_buffer = true}});
  const auto result = AggregateModel(*strategy, contributions);
  EXPECT_LT(Values(result[0].second)[0], 1.5);
  EXPECT_THAT(Values(result[1].second), ElementsAre(2));
}

TEST_P(EachServerOptimizerTest, WithoutAStartTheFirstMeanIsIt) {
  const auto strategy = Create(GetParam());
  EXPECT_THAT(AggregateValues(*strategy, Workers({{0, -3}, {2, -1}})),
              ElementsAre(1, -2));
  const auto other = Create(GetParam());
  other->Reset(Start());
  EXPECT_EQ(AggregateValues(*strategy, Round(0)),
            AggregateValues(*other, Round(0)));
}

TEST_P(EachServerOptimizerTest, WorkersThatDoNotMoveDoNotMoveTheServer) {
  const auto strategy = Create(GetParam());
  strategy->Reset(Start());
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(
        AggregateValues(*strategy, Workers({{1, -2}, {1, -2}, {1, -2}})),
        ElementsAre(1, -2));
  }
}

TEST_P(EachServerOptimizerTest, ResetForgetsTheMoments) {
  const auto strategy = Create(GetParam());
  strategy->Reset(Start());
  const auto first = AggregateValues(*strategy, Round(0));
  AggregateValues(*strategy, Round(1));
  strategy->Reset(Start());
  EXPECT_EQ(AggregateValues(*strategy, Round(0)), first);
}

TEST_P(EachServerOptimizerTest, EveryFloatTypeTakesTheSameSteps) {
  const at::Tensor start = Floats({1, -2, 0.5});
  const at::Tensor a = Floats({1.5, -1, 0.5});
  const at::Tensor b = Floats({2, -1.5, 1});
  const auto run = [&](auto convert) {
    const auto strategy = Create(GetParam());
    strategy->Reset({{"w", convert(start)}});
    NamedTensors result;
    for (int round = 0; round < 2; ++round) {
      result = AggregateModel(
          *strategy, Contributions({{{"w", convert(a)}}, {{"w", convert(b)}}}));
    }
    return result[0].second;
  };
  const std::vector<double> expected =
      Values(run([](const at::Tensor& t) { return t.to(at::kDouble); }));
  for (const auto& [type, tolerance] :
       {std::pair(at::kFloat, 1e-6), std::pair(at::kHalf, 4e-3),
        std::pair(at::kBFloat16, 3e-2)}) {
    const at::Tensor result =
        run([&](const at::Tensor& t) { return t.to(type); });
    EXPECT_EQ(result.scalar_type(), type);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(Values(result)[i], expected[i], tolerance) << type;
    }
  }
  const at::Tensor imaginary = at::imag(run([](const at::Tensor& t) {
    return at::complex(Floats({0, 0, 0}), t);
  }));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(Values(imaginary)[i], expected[i], 1e-6);
  }
}

TEST_P(EachServerOptimizerTest, AModelThatIsItsOwnItWritesOver) {
  const auto strategy = Create(GetParam());
  strategy->Reset(Start());
  const Contribution contribution = Round(0).front();
  const auto result = strategy->AggregateOwn(contribution);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].second.data_ptr(),
            contribution.tensors[0].second.data_ptr());
}

TEST_P(EachServerOptimizerTest, AnotherModelIsAnErrorThatChangesNothing) {
  const auto strategy = Create(GetParam());
  strategy->Reset(Start());
  EXPECT_EQ(strategy->Aggregate(Workers({{1, 2, 3}})).status().message(),
            "worker 0: 'w' is Float [3], expected Float [2] as in the server's "
            "weights");
  const auto other = Create(GetParam());
  other->Reset(Start());
  EXPECT_EQ(AggregateValues(*strategy, Round(0)),
            AggregateValues(*other, Round(0)));
}

TEST_P(EachServerOptimizerTest, AnAbsurdStepStopsNothing) {
  const auto strategy = Create(GetParam());
  strategy->Reset({{"w", Floats({0})}});
  const float largest = std::numeric_limits<float>::max();
  ASSERT_TRUE(strategy->Aggregate(Workers({{largest / 4}})).ok());
  const auto state = strategy->SaveState();
  ASSERT_TRUE(state.ok());
  for (const auto& [name, tensor] : state->tensors) {
    EXPECT_TRUE(std::isfinite(Values(tensor)[0])) << name;
  }
}

TEST_P(EachServerOptimizerTest, AForeignStateIsRefused) {
  const auto saved = Create(GetParam());
  saved->Reset(Start());
  ASSERT_TRUE(saved->Aggregate(Round(0)).ok());
  const StrategyState state = *saved->SaveState();
  ASSERT_FALSE(state.tensors.empty());

  const auto restored = Create(GetParam());
  EXPECT_THAT(
      std::string(
          restored->RestoreState(state, {{"w", Floats({1, 2, 3})}}).message()),
      HasSubstr("is not of the shape"));
  EXPECT_THAT(
      std::string(
          restored->RestoreState(state, {{"v", Floats({1, 2})}}).message()),
      HasSubstr("/w', for which this strategy and model have no use"));
  StrategyState partial = state;
  partial.tensors.pop_back();
  // With one moment nothing is left: a state from before the first step.
  if (partial.tensors.empty()) return;
  ASSERT_TRUE(restored->RestoreState(partial, Start()).ok());
  EXPECT_THAT(std::string(restored->Aggregate(Round(0)).status().message()),
              HasSubstr("the restored state has no 'v/w'"));
}

INSTANTIATE_TEST_SUITE_P(All, EachServerOptimizerTest,
                         ::testing::Values("fedavgm", "fedadam", "fedyogi",
                                           "fedadagrad", "diloco"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace miniray::ps
