// The worker of custom_trainer.

#ifndef MINIRAY_ML_EXAMPLES_LINE_SEARCHER_H_
#define MINIRAY_ML_EXAMPLES_LINE_SEARCHER_H_

#include <random>
#include <string>

#include "runtime/api/miniray.h"

namespace miniray::ml {

// y = slope * x + offset.
struct Line {
  double slope = 0;
  double offset = 0;
  double error = 0;  // Of LineSearcher::Search: the mean squared error.
};
MINIRAY_STRUCT(Line, slope, offset, error);

// "epoch  1  error 4.433333  y = 0.000 x +0.000". epoch: from 0.
std::string EpochText(int epoch, const Line& line);

inline bool FitsBetter(const Line& a, const Line& b) {
  return a.error < b.error;
}

// Any class is a worker of a BaseTrainer: what is called, its trainer decides.
class LineSearcher {
 public:
  explicit LineSearcher(int worker_id)
      : random_(static_cast<unsigned>(worker_id)) {}

  // Returns the line that fits best to the points of y = 3 x - 2 with x from -1
  // to 1: `center` itself, or one of kTries whose slope and offset differ from
  // its by normal noise with the deviation `spread`. Its error is right then.
  Line Search(const Line& center, double spread);

  static constexpr int kTries = 100;

 private:
  std::mt19937 random_;
};
MINIRAY_ACTOR(LineSearcher, Constructor<int>, &LineSearcher::Search);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_LINE_SEARCHER_H_
