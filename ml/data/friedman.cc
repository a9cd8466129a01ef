#include "ml/data/friedman.h"

#include <cmath>
#include <numbers>
#include <random>

#include "absl/strings/str_cat.h"

namespace miniray::ml {
namespace {

constexpr int kFeatures = 10;
constexpr int64_t kMaxRows = int64_t{1} << 24;

// std::uniform_real_distribution and std::normal_distribution differ from one
// standard library to the next.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}

  // In [0, 1).
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  // Box, Muller: "A note on the generation of random normal deviates", 1958.
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace

absl::StatusOr<NumberTable> MakeFriedmanTable(int64_t rows, uint64_t seed) {
  if (rows < 1 || rows > kMaxRows) {
    return absl::InvalidArgumentError(
        absl::StrCat("a table of ", rows, " rows; expected 1 to ", kMaxRows));
  }
  NumberTable table;
  for (int i = 1; i <= kFeatures; ++i) {
    table.columns.push_back(absl::StrCat("x", i));
  }
  table.columns.push_back("y");
  table.values.reserve(rows * table.columns.size());
  Draws draws(seed);
  for (int64_t row = 0; row < rows; ++row) {
    double x[kFeatures];
    for (double& value : x) {
      value = draws.Uniform();
      table.values.push_back(value);
    }
    table.values.push_back(10 * std::sin(std::numbers::pi * x[0] * x[1]) +
                           20 * (x[2] - 0.5) * (x[2] - 0.5) + 10 * x[3] +
                           5 * x[4] + draws.Normal());
  }
  return table;
}

}  // namespace miniray::ml
