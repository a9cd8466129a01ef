#include "ml/metrics/frechet_distance.h"

#include <cmath>
#include <limits>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "ml/metrics/feature_statistics.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;

at::Tensor Vector(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

at::Tensor Square(const std::vector<double>& values) {
  const auto side = static_cast<int64_t>(
      std::lround(std::sqrt(static_cast<double>(values.size()))));
  return Vector(values).view({side, side});
}

double Distance(const Gaussian& a, const Gaussian& b) {
  const absl::StatusOr<double> distance = FrechetDistance(a, b);
  EXPECT_TRUE(distance.ok()) << distance.status();
  return distance.value_or(-1);
}

TEST(FrechetDistanceTest, OfDiagonalCovariances) {
  // 3^2 + 4^2, and the squares of the standard deviations' differences:
  // (1 - 3)^2 + (2 - 4)^2.
  const Gaussian a = {Vector({0, 0}), Square({1, 0, 0, 4})};
  const Gaussian b = {Vector({3, 4}), Square({9, 0, 0, 16})};
  EXPECT_NEAR(Distance(a, b), 33, 1e-12);
  EXPECT_NEAR(Distance(b, a), 33, 1e-12);
}

TEST(FrechetDistanceTest, OfCovariancesThatDoNotCommute) {
  // Of a 2 x 2 matrix with eigenvalues x and y, (sqrt x + sqrt y)^2 = x + y +
  // 2 sqrt(x y), the trace and twice the root of the determinant. Of the
  // product these are 2 * 1 + 2 * 3 = 8 and 3 * 3 = 9, so the trace of its root
  // is sqrt(8 + 2 * 3).
  const Gaussian a = {Vector({1, 1}), Square({2, 1, 1, 2})};
  const Gaussian b = {Vector({1, 1}), Square({1, 0, 0, 3})};
  EXPECT_NEAR(Distance(a, b), 4 + 4 - 2 * std::sqrt(14.0), 1e-12);

  // By NumPy from the eigenvalues of the product, which is not symmetric:
  //   e = numpy.linalg.eigvals(C1 @ C2)   # 10.93762343 2.45385561 5.10852096
  //   ((m1 - m2)**2).sum() + trace(C1 + C2) - 2 * numpy.sqrt(e).sum()
  // and with the root that the Denman-Beavers iteration finds, to 14 digits.
  const Gaussian c = {Vector({1, -2, 0.5}),
                      Square({4, 1, 0.5, 1, 3, -1, 0.5, -1, 2})};
  const Gaussian d = {Vector({0, 1, 2}),
                      Square({1, -0.25, 0.5, -0.25, 2, 0.75, 0.5, 0.75, 5})};
  EXPECT_NEAR(Distance(c, d), 14.982219455091272, 1e-11);
  EXPECT_NEAR(Distance(d, c), 14.982219455091272, 1e-11);
}

TEST(FrechetDistanceTest, OfAGaussianAndItselfIsNone) {
  const Gaussian a = {Vector({1, -2, 0.5}),
                      Square({4, 1, 0.5, 1, 3, -1, 0.5, -1, 2})};
  EXPECT_NEAR(Distance(a, a), 0, 1e-12);
  EXPECT_GE(Distance(a, a), 0);
}

TEST(FrechetDistanceTest, OfSingularCovariances) {
  // C1 = u u^T and C2 = v v^T: the root of their product has the trace |u . v|.
  // Here |u|^2 = 9 and |v|^2 = 25.
  const at::Tensor u = Vector({1, 2, 2});
  const at::Tensor v = Vector({3, 4, -4}) * (5 / std::sqrt(41.0));
  const Gaussian a = {Vector({0, 0, 0}), at::outer(u, u)};
  const Gaussian b = {Vector({0, 0, 0}), at::outer(v, v)};
  const double dot = std::abs((u * v).sum().item<double>());
  // Roots of what rounding leaves of 0 are no more than 1e-7.
  EXPECT_NEAR(Distance(a, b), 9 + 25 - 2 * dot, 1e-6);
  const Gaussian none = {Vector({0, 0, 0}), at::zeros({3, 3}, at::kDouble)};
  EXPECT_NEAR(Distance(a, none), 9, 1e-12);
  EXPECT_EQ(Distance(none, none), 0);
}

TEST(FrechetDistanceTest, OfCovariancesWithNothingInCommon) {
  // u u^T and v v^T with u = (1, 3) and v = (3, -1): u . v is 0, so the product
  // is 0, and what is left are the traces, 10 each. What rounding leaves of the
  // product has eigenvalues of about 1e-14 of either sign.
  const Gaussian a = {Vector({0, 0}), Square({1, 3, 3, 9})};
  const Gaussian b = {Vector({0, 0}), Square({9, -3, -3, 1})};
  EXPECT_NEAR(Distance(a, b), 20, 1e-6);
  EXPECT_NEAR(Distance(b, a), 20, 1e-6);
}

TEST(FrechetDistanceTest, OfFewerImagesThanFeatures) {
  at::manual_seed(1);
  FeatureStatistics few;
  ASSERT_EQ(few.Add(at::randn({5, 40}, at::kDouble)), absl::OkStatus());
  const Gaussian a = {few.mean, *few.Covariance()};
  // Of 36 eigenvalues that should be 0, the roots of what rounding has left.
  EXPECT_NEAR(Distance(a, a), 0, 1e-3);
  // Moved by 2 in each of 40 features.
  const Gaussian moved = {few.mean + 2, a.covariance};
  EXPECT_NEAR(Distance(a, moved), 160, 1e-3);
}

TEST(FrechetDistanceTest, TheRootIsARoot) {
  const at::Tensor covariance = Square({4, 1, 0.5, 1, 3, -1, 0.5, -1, 2});
  ASSERT_OK_AND_ASSIGN(const at::Tensor root, SymmetricRoot(covariance));
  EXPECT_TRUE(at::allclose(at::mm(root, root), covariance, 0, 1e-13));
  EXPECT_TRUE(at::allclose(root, root.t(), 0, 1e-14));
  // By NumPy: w, v = numpy.linalg.eigh(C); (v * numpy.sqrt(w)) @ v.T.
  EXPECT_TRUE(at::allclose(
      root,
      Square({1.97033502, 0.29180943, 0.18062985, 0.29180943, 1.67158056,
              -0.34736965, 0.18062985, -0.34736965, 1.35893605}),
      0, 1e-8));
}

TEST(FrechetDistanceTest, TinyNegativeEigenvaluesAreRounding) {
  ASSERT_OK_AND_ASSIGN(const at::Tensor root,
                       SymmetricRoot(Square({1, 0, 0, -1e-9})));
  EXPECT_TRUE(at::allclose(root, Square({1, 0, 0, 0}), 0, 1e-12));
  ExpectError(SymmetricRoot(Square({1, 0, 0, -1e-3})).status(),
              kInvalidArgument, {"eigenvalue -0.001", "expected none below 0"});
  // Eigenvalues 3 and -1.
  ExpectError(SymmetricRoot(Square({1, 2, 2, 1})).status(), kInvalidArgument,
              {"eigenvalue -1"});
}

TEST(FrechetDistanceTest, RefusesWhatIsNoGaussian) {
  const Gaussian good = {Vector({0, 0}), Square({1, 0, 0, 1})};
  ExpectError(
      FrechetDistance(good, {Vector({0, 0}), Square({1, 0.5, 0, 1})}).status(),
      kInvalidArgument, {"not symmetric", "0.5"});
  // Eigenvalues 3 and -1, on either side.
  const Gaussian negative = {Vector({0, 0}), Square({1, 2, 2, 1})};
  ExpectError(FrechetDistance(good, negative).status(), kInvalidArgument,
              {"eigenvalue -1", "expected none below 0"});
  ExpectError(FrechetDistance(negative, good).status(), kInvalidArgument,
              {"eigenvalue -1", "expected none below 0"});
  ExpectError(FrechetDistance({Vector({0}), Square({1})}, good).status(),
              kInvalidArgument, {"1 and 2 features"});
  ExpectError(
      FrechetDistance(good, {Vector({0}), Square({1, 0, 0, 1})}).status(),
      kInvalidArgument, {"a mean is"});
  ExpectError(FrechetDistance(good, {at::zeros({2}), at::eye(2)}).status(),
              kInvalidArgument, {"float64"});
  ExpectError(FrechetDistance(good, {}).status(), kInvalidArgument,
              {"undefined"});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ExpectError(
      FrechetDistance(good, {Vector({0, 0}), Square({nan, 0, 0, 1})}).status(),
      kInvalidArgument, {"not a number"});
  ExpectError(
      FrechetDistance({Vector({nan, 0}), good.covariance}, good).status(),
      kInvalidArgument, {"expected finite"});
}

}  // namespace
}  // namespace miniray::ml
