#include "ps/check_weights.h"

#include <cmath>

#include "ATen/ops/complex.h"
#include "ATen/ops/sparse_coo_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/tensors.h"

namespace miniray::ps {
namespace {

using ::testing::HasSubstr;

std::string Error(const absl::Status& status) {
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CheckValuesTest, AcceptsFiniteTensorsOfEveryType) {
  EXPECT_EQ(
      "", Error(CheckValues({{"float", Floats({1, -2, 0})},
                             {"double", Doubles({1e300})},
                             {"half", Floats({1}).to(at::kHalf)},
                             {"bfloat16", Floats({1}).to(at::kBFloat16)},
                             {"complex", at::complex(Floats({1}), Floats({2}))},
                             {"int", Ints({-7})},
                             {"bool", Make<bool>(at::kBool, {true})},
                             {"none", Floats({})}},
                            "worker 0")));
}

TEST(CheckValuesTest, NamesWorkerTensorAndPlaceOfAValueThatIsNotFinite) {
  const std::string error = Error(CheckValues(
      {{"a", Floats({1})}, {"b.weight", Floats({1, 2, NAN, 3}).view({2, 2})}},
      "worker 3"));
  EXPECT_THAT(error, HasSubstr("worker 3: 'b.weight' Float [2, 2] holds a "
                               "value that is infinite or NaN at flat index "
                               "2"));
}

TEST(CheckValuesTest, FindsValuesThatAreNotFiniteInEveryFloatType) {
  const at::Tensor bad = Floats({0, 1, INFINITY});
  for (const at::Tensor& tensor :
       {bad, bad.to(at::kDouble), bad.to(at::kHalf), bad.to(at::kBFloat16),
        at::complex(Floats({0, 1, 2}), bad)}) {
    EXPECT_THAT(Error(CheckValues({{"w", tensor}}, "x")),
                HasSubstr("at flat index 2"))
        << tensor.scalar_type();
  }
}

TEST(CheckValuesTest, ADoubleBeyondTheRangeOfFloatIsFinite) {
  EXPECT_EQ("", Error(CheckValues({{"w", Doubles({1e200})}}, "x")));
}

TEST(CheckValuesTest, RefusesWhatIsNoModel) {
  EXPECT_EQ("worker 1: the model has no tensors",
            Error(CheckValues({}, "worker 1")));
  EXPECT_EQ("x: two tensors have the name 'w'",
            Error(CheckValues({{"w", Floats({1})}, {"w", Floats({1})}}, "x")));
  EXPECT_THAT(Error(CheckValues({{"w", at::Tensor()}}, "x")),
              HasSubstr("'w' is undefined"));
  const at::Tensor sparse = at::sparse_coo_tensor(
      Ints({0, 1}).view({1, 2}), Floats({1, 2}), {3}, at::kFloat);
  EXPECT_THAT(Error(CheckValues({{"w", sparse}}, "x")),
              HasSubstr("'w' is sparse"));
}

NamedTensors Model() {
  return {{"fc.weight", Floats({1, 2, 3, 4}).view({2, 2})},
          {"fc.bias", Floats({1, 2})},
          {"n", Ints({1})}};
}

std::string LayoutError(const NamedTensors& weights) {
  return Error(
      CheckLayout(weights, ModelLayout::Of(Model()), "worker 2", "worker 0"));
}

TEST(CheckLayoutTest, AcceptsOtherValues) {
  NamedTensors weights = Model();
  weights[1].second = Floats({7, 8});
  EXPECT_EQ("", LayoutError(weights));
}

TEST(CheckLayoutTest, NamesWhatDiffers) {
  NamedTensors weights = Model();
  weights[0].second = Floats({1, 2, 3, 4}).view({4, 1});
  EXPECT_EQ(LayoutError(weights),
            "worker 2: 'fc.weight' is Float [4, 1], expected Float [2, 2] as "
            "in worker 0");

  weights = Model();
  weights[1].second = Doubles({1, 2});
  EXPECT_EQ(LayoutError(weights),
            "worker 2: 'fc.bias' is Double [2], expected Float [2] as in "
            "worker 0");

  weights = Model();
  std::swap(weights[0], weights[1]);
  EXPECT_EQ(LayoutError(weights),
            "worker 2: tensor 0 is 'fc.bias', expected 'fc.weight' as in "
            "worker 0");

  weights = Model();
  weights.pop_back();
  EXPECT_EQ(LayoutError(weights), "worker 2: lacks 'n', which worker 0 has");

  weights = Model();
  weights.emplace_back("more", Floats({1}));
  EXPECT_EQ(LayoutError(weights),
            "worker 2: has 'more', which worker 0 has not");
}

TEST(CheckWeightsTest, CountsBytes) {
  EXPECT_EQ(TotalBytes(Model()), 4 * 4 + 2 * 4 + 8);
  EXPECT_EQ(TotalBytes({}), 0);
}

}  // namespace
}  // namespace miniray::ps
