// A line at the bottom of the terminal that says how far a program is.
//
//   ProgressBar bar({});
//   for (...) bar.Update(done / total, "epoch 3/10", "1,200/s  loss 0.91");
//   bar.Print("epoch 3/10 done");   // A line that stays.

#ifndef MINIRAY_ML_CLI_PROGRESS_BAR_H_
#define MINIRAY_ML_CLI_PROGRESS_BAR_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ml/cli/stderr_hook.h"

namespace miniray::ml {

// Returns "<left> [=====>    ]  45% <right>" of at most `width` ASCII columns.
// When there is too little room, first the bar shrinks, then it goes, then the
// text is cut.
//
// fraction: clamped to [0, 1]; NaN counts as 0.
std::string RenderProgressBar(double fraction, absl::string_view left,
                              absl::string_view right, int width);

// How long something will still take, by how fast it went since the first call.
class TimeLeft {
 public:
  // "eta 1:23"; empty as long as nothing has moved.
  std::string Text(double fraction, absl::Time now);

 private:
  std::optional<double> first_fraction_;
  absl::Time first_time_;
};

// Where `out` is no terminal that can be drawn on, Update prints a plain line
// now and then instead.
//
// Where the bar is on stderr, what else is written there (glog's lines, actors'
// output) stands above it: see StderrHook. The bar leaves nothing of the
// terminal other than it was: neither the cursor nor its settings are touched.
//
// Thread-safe.
class ProgressBar {
 public:
  struct Options {
    std::FILE* out = nullptr;  // Where the bar is drawn; null: stderr.
    std::FILE* text = stdout;  // Where Print writes, and plain lines go.
    // Whether to draw; by default, if `out` is a terminal that can.
    std::optional<bool> draw;
    absl::Duration min_interval = absl::Milliseconds(100);
    // Of plain lines, also after a Print.
    absl::Duration line_interval = absl::Seconds(10);
    // Takes the bar away where SIGINT or SIGTERM ends the process, if nothing
    // else is told to happen then. Not for programs that catch them later, and
    // only if nobody has.
    bool clear_on_signals = false;
    std::function<absl::Time()> clock = &absl::Now;  // Tests pass a fake.
  };

  explicit ProgressBar(Options options);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // False where nobody would see it: lines are all there is then.
  bool draws() const { return draws_; }

  // How often it is worth the while to find out how far things are.
  absl::Duration poll_interval() const {
    return draws_ ? absl::Milliseconds(500) : options_.line_interval / 2;
  }

  // Draws the bar, unless it was drawn less than min_interval ago; or prints a
  // line, unless there was one less than line_interval ago.
  void Update(double fraction, absl::string_view left, absl::string_view right)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Prints a line that stays above the bar.
  void Print(absl::string_view line) ABSL_LOCKS_EXCLUDED(mu_);

  // Takes the bar away. The next Update draws it at once.
  void Clear() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void ClearLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DrawLocked(absl::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PrintLocked(absl::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lines that something else has for stderr.
  void PassOn(absl::string_view lines) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  std::FILE* const out_;
  const bool draws_;
  absl::Mutex mu_;
  bool shown_ ABSL_GUARDED_BY(mu_) = false;
  std::string line_ ABSL_GUARDED_BY(mu_);  // While it is shown.
  absl::Time last_drawn_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time last_line_ ABSL_GUARDED_BY(mu_);
  bool on_signals_ = false;
  std::unique_ptr<StderrHook> hook_;  // Null unless the bar is on stderr.
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLI_PROGRESS_BAR_H_
