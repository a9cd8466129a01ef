#include "ml/metrics/feature_statistics.h"

#include <limits>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;

// Correlated features with a mean far from 0, the same each time.
at::Tensor MakeFeatures(int64_t count, int64_t features) {
  at::manual_seed(1);
  const at::Tensor mixing = at::randn({features, features}, at::kDouble);
  return at::mm(at::randn({count, features}, at::kDouble), mixing) + 10;
}

FeatureStatistics Of(const at::Tensor& features) {
  FeatureStatistics statistics;
  EXPECT_EQ(statistics.Add(features), absl::OkStatus());
  return statistics;
}

void ExpectSame(const FeatureStatistics& a, const FeatureStatistics& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_TRUE(at::allclose(a.mean, b.mean, 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(*a.Covariance(), *b.Covariance(), 1e-12, 1e-12));
}

TEST(FeatureStatisticsTest, AreWhatOneWorksOut) {
  // The mean is (3, 4), so the differences are (-2, -2), (0, 2) and (2, 0).
  const FeatureStatistics statistics =
      Of(at::tensor({1., 2., 3., 6., 5., 4.}).view({3, 2}));
  EXPECT_EQ(statistics.count, 3);
  EXPECT_EQ(statistics.num_features(), 2);
  EXPECT_TRUE(at::equal(statistics.mean, at::tensor({3., 4.}, at::kDouble)));
  EXPECT_TRUE(
      at::equal(*statistics.Covariance(),
                at::tensor({4., 2., 2., 4.}, at::kDouble).view({2, 2})));
}

TEST(FeatureStatisticsTest, PiecesGiveWhatTheWholeDoes) {
  const at::Tensor features = MakeFeatures(1000, 7);
  const FeatureStatistics whole = Of(features);
  FeatureStatistics pieces;
  int64_t begin = 0;
  for (const int64_t size : {1, 2, 64, 300, 633}) {
    ASSERT_EQ(pieces.Add(features.slice(0, begin, begin + size)),
              absl::OkStatus());
    begin += size;
  }
  ASSERT_EQ(begin, 1000);
  ExpectSame(pieces, whole);
  // LibTorch's own, as a reference.
  EXPECT_TRUE(
      at::allclose(*whole.Covariance(), at::cov(features.t()), 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(whole.mean, features.mean(0), 1e-12, 1e-12));
}

TEST(FeatureStatisticsTest, WorkersTogetherHaveWhatOneHas) {
  const at::Tensor features = MakeFeatures(500, 12);
  const FeatureStatistics whole = Of(features);
  const FeatureStatistics parts[] = {Of(features.slice(0, 0, 1)),
                                     Of(features.slice(0, 1, 100)),
                                     Of(features.slice(0, 100, 500))};
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    FeatureStatistics merged;
    for (const int part : order) {
      ASSERT_EQ(merged.Merge(parts[part]), absl::OkStatus());
    }
    ExpectSame(merged, whole);
  }
}

TEST(FeatureStatisticsTest, NothingChangesNothing) {
  const at::Tensor features = MakeFeatures(10, 3);
  FeatureStatistics some = Of(features);
  ASSERT_EQ(some.Merge(FeatureStatistics()), absl::OkStatus());
  ExpectSame(some, Of(features));
  FeatureStatistics none;
  ASSERT_EQ(none.Merge(some), absl::OkStatus());
  ExpectSame(none, some);
  EXPECT_EQ(FeatureStatistics().num_features(), 0);
}

TEST(FeatureStatisticsTest, ACopyIsItsOwn) {
  const at::Tensor features = MakeFeatures(10, 3);
  FeatureStatistics first = Of(features);
  const FeatureStatistics copy = first;
  ASSERT_EQ(first.Add(features + 1), absl::OkStatus());
  ExpectSame(copy, Of(features));
}

TEST(FeatureStatisticsTest, FewerVectorsThanFeaturesAreSingular) {
  const at::Tensor covariance = *Of(MakeFeatures(3, 8)).Covariance();
  const at::Tensor eigenvalues = at::linalg_eigvalsh(covariance);
  // Rank 2: three differences that add up to 0.
  EXPECT_LT(eigenvalues.slice(0, 0, 6).abs().max().item<double>(), 1e-9);
  EXPECT_GT(eigenvalues[6].item<double>(), 1e-6);
}

TEST(FeatureStatisticsTest, RefuseWhatCannotBe) {
  FeatureStatistics statistics;
  ExpectError(statistics.Covariance().status(), kInvalidArgument,
              {"at least two", "there are 0"});
  ExpectError(statistics.Add(at::ones({3})), kInvalidArgument,
              {"floating [N, F]"});
  ExpectError(statistics.Add(at::ones({2, 3}, at::kLong)), kInvalidArgument,
              {"floating [N, F]"});
  ExpectError(statistics.Add(at::ones({0, 3})), kInvalidArgument,
              {"each at least 1"});
  ExpectError(statistics.Add(at::Tensor()), kInvalidArgument, {"undefined"});
  ExpectError(statistics.Add(at::zeros({1, kMaxFeatures + 1})),
              kInvalidArgument, {"at most 8192"});
  at::Tensor infinite = at::ones({2, 3});
  infinite[1][2] = std::numeric_limits<float>::infinity();
  ExpectError(statistics.Add(infinite), kInvalidArgument, {"infinite"});
  EXPECT_EQ(statistics.count, 0);

  ASSERT_EQ(statistics.Add(at::ones({1, 3})), absl::OkStatus());
  ExpectError(statistics.Covariance().status(), kInvalidArgument,
              {"there are 1"});
  ExpectError(statistics.Add(at::ones({1, 4})), kInvalidArgument,
              {"4 features come to 3"});

  FeatureStatistics damaged = statistics;
  damaged.count = -1;
  ExpectError(statistics.Merge(damaged), kInvalidArgument, {"-1 vectors"});
  damaged = statistics;
  damaged.scatter = at::zeros({3, 2}, at::kDouble);
  ExpectError(statistics.Merge(damaged), kInvalidArgument,
              {"the scatter is", "F = 3"});
  damaged = statistics;
  damaged.mean = at::ones({3});
  ExpectError(damaged.Validate(), kInvalidArgument, {"the mean is"});
}

}  // namespace
}  // namespace miniray::ml
