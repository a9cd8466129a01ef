// average, weighted and momentum against values worked out by hand. The numbers
// are such that binary fractions hold them exactly.

#include <cmath>
#include <limits>

#include "ATen/ops/complex.h"
#include "ATen/ops/scalar_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/finite_result.h"
#include "tests/ps/median_strategy.h"
#include "tests/ps/strategy_testutil.h"
#include "tests/runtime/base/readme_code.h"

namespace miniray::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AverageTest, IsTheMeanInOrderOfTheModel) {
  auto average = Create("average");
  const auto result = average->Aggregate(
      Contributions({{{"w", Floats({1, 2, -3})}, {"b", Floats({0.5})}},
                     {{"w", Floats({3, 6, 4})}, {"b", Floats({1})}},
                     {{"w", Floats({5, 1, 2})}, {"b", Floats({3})}}}));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->size(), 2);
  EXPECT_EQ((*result)[0].first, "w");
  EXPECT_EQ((*result)[1].first, "b");
  // (1+3+5)/3, (2+6+1)/3, (-3+4+2)/3; (0.5+1+3)/3
  EXPECT_THAT(Values((*result)[0].second), ElementsAre(3, 3, 1));
  EXPECT_THAT(Values((*result)[1].second), ElementsAre(1.5));
}

TEST(AverageTest, OneWorkerIsItsOwnAverage) {
  EXPECT_THAT(AggregateValues(*Create("average"),
                              Contributions({{{"w", Floats({1, 2})}}})),
              ElementsAre(1, 2));
}

// The stated rule: buffers are averaged, counters and masks are the maximum.
TEST(AverageTest, BuffersAreAveragedAndIntegersAreTheMaximum) {
  const auto result = Create("average")->Aggregate(
      Contributions({{{"bn.running_mean", Floats({1})},
                      {"bn.num_batches_tracked", Ints({10})},
                      {"mask", Make<bool>(at::kBool, {false, true})},
                      {"byte", Make<uint8_t>(at::kByte, {200})}},
                     {{"bn.running_mean", Floats({2})},
                      {"bn.num_batches_tracked", Ints({13})},
                      {"mask", Make<bool>(at::kBool, {false, false})},
                      {"byte", Make<uint8_t>(at::kByte, {100})}}}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Values((*result)[0].second), ElementsAre(1.5));
  EXPECT_THAT(Values((*result)[1].second), ElementsAre(13));
  EXPECT_THAT(Values((*result)[2].second), ElementsAre(0, 1));
  EXPECT_THAT(Values((*result)[3].second), ElementsAre(200));
  EXPECT_EQ((*result)[1].second.scalar_type(), at::kLong);
  EXPECT_EQ((*result)[2].second.scalar_type(), at::kBool);
}

TEST(AverageTest, KeepsElementTypesAndShapes) {
  const at::Tensor a = Floats({1, 2, 3, 4, 5, 6}).view({2, 3});
  const at::Tensor b = Floats({3, 4, 5, 6, 7, 8}).view({2, 3});
  for (at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto result = Create("average")->Aggregate(
        Contributions({{{"w", a.to(type)}}, {{"w", b.to(type)}}}));
    ASSERT_TRUE(result.ok()) << result.status();
    const at::Tensor& mean = result->front().second;
    EXPECT_EQ(mean.scalar_type(), type);
    EXPECT_EQ(mean.sizes(), at::IntArrayRef({2, 3}));
    EXPECT_THAT(Values(mean), ElementsAre(2, 3, 4, 5, 6, 7)) << type;
  }
}

TEST(AverageTest, AveragesComplexNumbers) {
  const auto result = Create("average")->Aggregate(
      Contributions({{{"w", at::complex(Floats({1, 2}), Floats({4, 0}))}},
                     {{"w", at::complex(Floats({3, 2}), Floats({-2, 1}))}}}));
  ASSERT_TRUE(result.ok()) << result.status();
  const at::Tensor& mean = result->front().second;
  EXPECT_TRUE(SameBits(mean, at::complex(Floats({2, 2}), Floats({1, 0.5f}))));
}

TEST(AverageTest, TakesScalarsEmptyAndNonContiguousTensors) {
  const at::Tensor matrix = Floats({1, 2, 3, 4}).view({2, 2});
  const auto result = Create("average")->Aggregate(Contributions(
      {{{"t", matrix.t()}, {"s", at::scalar_tensor(4)}, {"e", Floats({})}},
       {{"t", matrix}, {"s", at::scalar_tensor(2)}, {"e", Floats({})}}}));
  ASSERT_TRUE(result.ok()) << result.status();
  // ([1 3] + [1 2]) / 2, ([2 4] + [3 4]) / 2
  EXPECT_THAT(Values((*result)[0].second), ElementsAre(1, 2.5, 2.5, 4));
  EXPECT_THAT(Values((*result)[1].second), ElementsAre(3));
  EXPECT_EQ((*result)[1].second.dim(), 0);
  EXPECT_EQ((*result)[2].second.numel(), 0);
}

TEST(AverageTest, LeavesContributionsAndEarlierResultsAlone) {
  auto average = Create("average");
  const at::Tensor a = Floats({1, 2});
  const at::Tensor b = Floats({3, 4});
  auto first = average->Aggregate(Contributions({{{"w", a}}, {{"w", b}}}));
  const void* const memory = first->front().second.data_ptr();
  const auto second =
      average->Aggregate(Contributions({{{"w", b}}, {{"w", b}}}));
  EXPECT_THAT(Values(second->front().second), ElementsAre(3, 4));
  EXPECT_THAT(Values(first->front().second), ElementsAre(2, 3));
  EXPECT_THAT(Values(a), ElementsAre(1, 2));
  // The memory of a result that nobody has any more serves again.
  first->clear();
  const auto again =
      average->Aggregate(Contributions({{{"w", a}}, {{"w", b}}}));
  EXPECT_EQ(again->front().second.data_ptr(), memory);
  // A larger model needs other memory.
  const auto third =
      average->Aggregate(Contributions({{{"w", Floats({7, 8, 9})}}}));
  EXPECT_THAT(Values(third->front().second), ElementsAre(7, 8, 9));
}

TEST(AverageTest, TheSameContributionsGiveTheSameBits) {
  std::vector<NamedTensors> models;
  for (int worker = 0; worker < 7; ++worker) {
    std::vector<float> values;
    for (int i = 0; i < 3000; ++i) values.push_back(std::sin(i * 7 + worker));
    models.push_back({{"w", Floats(values)}});
  }
  auto once = Create("average");
  const auto a = once->Aggregate(Contributions(models));
  const at::Tensor first = a->front().second.clone();
  const auto b = once->Aggregate(Contributions(models));
  const auto c = Create("average")->Aggregate(Contributions(models));
  EXPECT_TRUE(SameBits(first, b->front().second));
  EXPECT_TRUE(SameBits(first, c->front().second));
}

std::vector<Contribution> Weighted(const std::vector<double>& weights) {
  std::vector<NamedTensors> models;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto value = static_cast<float>(1 + 4 * i);  // 1, 5, 9
    models.push_back({{"w", Floats({value, -value})}});
  }
  auto contributions = Contributions(models);
  for (size_t i = 0; i < weights.size(); ++i) {
    contributions[i].weight = weights[i];
  }
  return contributions;
}

TEST(FiniteResultTest, IsKnownOfLinearStrategies) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const char* name : {"average", "weighted", "momentum"}) {
    auto strategy = Create(name);
    const auto* const known = dynamic_cast<FiniteResult*>(strategy.get());
    ASSERT_NE(known, nullptr) << name;
    EXPECT_FALSE(known->ResultIsFinite()) << name << " before the first";
    AggregateValues(*strategy, Workers({{1, 2, 3}, {4, 5, 6}}));
    EXPECT_TRUE(known->ResultIsFinite()) << name;
    AggregateValues(*strategy, Workers({{1, 2, 3}, {4, kInfinity, 6}}));
    EXPECT_FALSE(known->ResultIsFinite()) << name;
    strategy->Reset({});
    AggregateValues(*strategy, Workers({{1, 2, 3}, {4, 5, 6}}));
    EXPECT_TRUE(known->ResultIsFinite()) << name << ", the next one";
  }
}

TEST(FiniteResultTest, IsNotKnownOfHalves) {
  auto average = Create("average");
  AggregateValues(*average,
                  Contributions({{{"w", Floats({1, 2}).to(at::kHalf)}},
                                 {{"w", Floats({3, 4}).to(at::kHalf)}}}));
  EXPECT_FALSE(dynamic_cast<FiniteResult*>(average.get())->ResultIsFinite());
}

TEST(WeightedTest, WeighsByWorker) {
  // (1000 * 1 + 3000 * 5) / 4000
  EXPECT_THAT(AggregateValues(*Create("weighted"), Weighted({1000, 3000})),
              ElementsAre(4, -4));
  // (1 * 1 + 0 * 5 + 3 * 9) / 4
  EXPECT_THAT(AggregateValues(*Create("weighted"), Weighted({1, 0, 3})),
              ElementsAre(7, -7));
}

TEST(WeightedTest, EqualWeightsAreTheAverage) {
  for (double weight : {1.0, 1e-300, 1e300}) {
    EXPECT_THAT(
        AggregateValues(*Create("weighted"), Weighted({weight, weight})),
        ElementsAre(3, -3))
        << weight;
  }
}

TEST(WeightedTest, ATotalOfZeroIsAnErrorAndNeverNaN) {
  const auto result = Create("weighted")->Aggregate(Weighted({0, 0}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("the weights of all 2 workers are 0"));
}

TEST(WeightedTest, WeightsThatAreNoneAreErrorsThatNameTheWorker) {
  for (double bad : {-1.0, std::nan(""), double{INFINITY}}) {
    const auto result = Create("weighted")->Aggregate(Weighted({1, bad}));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("worker 1 has the weight"));
  }
}

TEST(WeightedTest, AloneUsesWorkerWeights) {
  EXPECT_TRUE(Create("weighted")->UsesWorkerWeights());
  EXPECT_FALSE(Create("average")->UsesWorkerWeights());
  EXPECT_FALSE(Create("momentum")->UsesWorkerWeights());
}

std::vector<Contribution> TwoWorkers(float a, float b) {
  return Contributions({{{"w", Floats({a})}, {"n", Ints({int64_t(a)})}},
                        {{"w", Floats({b})}, {"n", Ints({int64_t(b)})}}});
}

TEST(MomentumTest, IsTheMovingAverageOfTheAverage) {
  auto momentum = Create("momentum", {{"momentum", 0.75}});
  // The first initialises: (1 + 3) / 2.
  EXPECT_THAT(AggregateValues(*momentum, TwoWorkers(1, 3)), ElementsAre(2));
  // 0.75 * 2 + 0.25 * (4 + 8) / 2
  EXPECT_THAT(AggregateValues(*momentum, TwoWorkers(4, 8)), ElementsAre(3));
  // 0.75 * 3 + 0.25 * (-1 + 1) / 2
  EXPECT_THAT(AggregateValues(*momentum, TwoWorkers(-1, 1)), ElementsAre(2.25));
}

TEST(MomentumTest, IntegersAreTheMaximumOfTheWorkers) {
  auto momentum = Create("momentum", {{"momentum", 0.75}});
  ASSERT_TRUE(momentum->Aggregate(TwoWorkers(9, 7)).ok());
  const auto result = momentum->Aggregate(TwoWorkers(4, 5));
  EXPECT_THAT(Values((*result)[1].second), ElementsAre(5));
}

TEST(MomentumTest, ZeroIsTheAverage) {
  auto momentum = Create("momentum", {{"momentum", 0.0}});
  EXPECT_THAT(AggregateValues(*momentum, TwoWorkers(1, 3)), ElementsAre(2));
  EXPECT_THAT(AggregateValues(*momentum, TwoWorkers(5, 6)), ElementsAre(5.5));
}

TEST(MomentumTest, ResetStartsFromOtherWeights) {
  auto momentum = Create("momentum", {{"momentum", 0.5}});
  const NamedTensors start = {{"w", Floats({10})}, {"n", Ints({1})}};
  momentum->Reset(start);
  // 0.5 * 10 + 0.5 * (1 + 3) / 2
  EXPECT_THAT(AggregateValues(*momentum, TwoWorkers(1, 3)), ElementsAre(6));
  EXPECT_THAT(Values(start[0].second), ElementsAre(10)) << "not its to change";
}

TEST(MomentumTest, AnotherModelIsAnError) {
  auto momentum = Create("momentum");
  ASSERT_TRUE(momentum->Aggregate(TwoWorkers(1, 3)).ok());
  const auto result = momentum->Aggregate(
      Contributions({{{"w", Floats({1, 2})}, {"n", Ints({1})}}}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status().message(),
            "worker 0: 'w' is Float [2], expected Float [1] as in the moving "
            "average");
  // Nothing has changed by that.
  EXPECT_THAT(AggregateValues(*momentum, TwoWorkers(1, 3)), ElementsAre(2));
}

TEST(LowerMedianTest, TheExampleOfTheReadmeWorks) {
  auto median = Create("lower_median");
  const auto result = median->Aggregate(
      Contributions({{{"w", Floats({1, 5})}, {"n", Ints({3})}},
                     {{"w", Floats({1000, 7})}, {"n", Ints({4})}},
                     {{"w", Floats({2, 6})}, {"n", Ints({2})}}}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Values((*result)[0].second), ElementsAre(2, 6));
  EXPECT_THAT(Values((*result)[1].second), ElementsAre(4));
  // Two workers: the lower one.
  EXPECT_THAT(AggregateValues(*median, TwoWorkers(3, 8)), ElementsAre(3));
}

TEST(LowerMedianTest, TheReadmeShowsTheCodeThatIsTestedHere) {
  ExpectReadmeShows("ps/README.md", "tests/ps/median_strategy.h");
}

}  // namespace
}  // namespace miniray::ps
