#include "ml/examples/line_searcher.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace miniray::ml {
namespace {

// Over x = -1, -0.9, ..., 1.
double ErrorOf(const Line& line) {
  constexpr int kPoints = 21;
  double sum = 0;
  for (int i = 0; i < kPoints; ++i) {
    const double x = (i - 10) / 10.0;
    const double error = line.slope * x + line.offset - (3 * x - 2);
    sum += error * error;
  }
  return sum / kPoints;
}

}  // namespace

std::string EpochText(int epoch, const Line& line) {
  return absl::StrFormat("epoch %2d  error %.6f  y = %.3f x %+.3f", epoch + 1,
                         line.error, line.slope, line.offset);
}

Line LineSearcher::Search(const Line& center, double spread) {
  std::normal_distribution<double> noise(0, spread);
  Line best = center;
  best.error = ErrorOf(best);
  for (int i = 0; i < kTries; ++i) {
    Line line = {.slope = center.slope + noise(random_),
                 .offset = center.offset + noise(random_)};
    line.error = ErrorOf(line);
    best = std::min(best, line, FitsBetter);
  }
  return best;
}

}  // namespace miniray::ml
