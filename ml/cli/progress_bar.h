// A line at the bottom of the terminal that says how far a program is.
//
//   ProgressBar bar({});
//   for (...) bar.Update(done / total, "epoch 3/10", "g_loss 0.91  1,200/s");
//   bar.Print("epoch 3/10 done");   // A line that stays.

#ifndef MINIRAY_ML_CLI_PROGRESS_BAR_H_
#define MINIRAY_ML_CLI_PROGRESS_BAR_H_

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace miniray::ml {

// Returns "<left> [=====>    ]  45% <right>" of at most `width` ASCII columns.
// When there is too little room, first the bar shrinks, then it goes, then the
// text is cut.
//
// fraction: clamped to [0, 1]; NaN counts as 0.
std::string RenderProgressBar(double fraction, absl::string_view left,
                              absl::string_view right, int width);

// Thread-safe.
class ProgressBar {
 public:
  struct Options {
    std::FILE* out = stdout;   // Where the bar is drawn.
    std::FILE* text = stdout;  // Where Print writes.
    // Whether to draw; by default, if `out` is a terminal that can.
    std::optional<bool> draw;
    absl::Duration min_interval = absl::Milliseconds(100);
    std::function<absl::Time()> clock = &absl::Now;  // Tests pass a fake.
  };

  explicit ProgressBar(Options options);
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // False where nobody would see it: lines are all there is then.
  bool draws() const { return draws_; }

  // Draws the bar, unless it was drawn less than min_interval ago.
  void Update(double fraction, absl::string_view left, absl::string_view right)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Prints a line that stays above the bar.
  void Print(absl::string_view line) ABSL_LOCKS_EXCLUDED(mu_);

  // Takes the bar away. The next Update draws it at once.
  void Clear() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void ClearLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const bool draws_;
  absl::Mutex mu_;
  bool shown_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time last_drawn_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLI_PROGRESS_BAR_H_
