#include "ml/cli/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace miniray::ml {
namespace {

constexpr int kWidestBar = 30;
constexpr int kNarrowestBar = 6;
constexpr int kUsualWidth = 80;

// To the start of the line, and delete to its end.
constexpr char kEraseLine[] = "\r\x1b[K";

bool IsCapableTerminal(std::FILE* file) {
  const char* const kind = std::getenv("TERM");
  return isatty(fileno(file)) != 0 && kind != nullptr &&
         absl::string_view(kind) != "dumb";
}

int TerminalWidth(std::FILE* file) {
  struct winsize size = {};
  if (ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return kUsualWidth;
}

}  // namespace

std::string RenderProgressBar(double fraction, absl::string_view left,
                              absl::string_view right, int width) {
  // NaN fails the comparison.
  const double done = fraction > 0 ? std::min(fraction, 1.0) : 0.0;
  const std::string percent =
      absl::StrFormat("%3d%%", static_cast<int>(done * 100));
  // Two brackets and two spaces.
  const int room =
      width - static_cast<int>(left.size() + right.size() + percent.size()) - 5;
  std::string line(left);
  if (room >= kNarrowestBar) {
    const int length = std::min(room, kWidestBar);
    const int filled = static_cast<int>(done * length);
    std::string bar(filled, '=');
    if (filled < length) bar.push_back('>');
    bar.resize(length, ' ');
    absl::StrAppend(&line, line.empty() ? "[" : " [", bar, "]");
  }
  absl::StrAppend(&line, line.empty() ? "" : " ", percent);
  if (!right.empty()) absl::StrAppend(&line, " ", right);
  line.resize(std::min(line.size(), static_cast<size_t>(std::max(width, 0))));
  return line;
}

ProgressBar::ProgressBar(Options options)
    : options_(std::move(options)),
      draws_(options_.draw.value_or(IsCapableTerminal(options_.out))) {}

void ProgressBar::Update(double fraction, absl::string_view left,
                         absl::string_view right) {
  if (!draws_) return;
  absl::MutexLock lock(&mu_);
  const absl::Time now = options_.clock();
  if (now - last_drawn_ < options_.min_interval) return;
  last_drawn_ = now;
  shown_ = true;
  // A terminal wraps when the last column is filled.
  const std::string line =
      RenderProgressBar(fraction, left, right, TerminalWidth(options_.out) - 1);
  std::fprintf(options_.out, "%s%s", kEraseLine, line.c_str());
  std::fflush(options_.out);
}

void ProgressBar::Print(absl::string_view line) {
  absl::MutexLock lock(&mu_);
  ClearLocked();
  std::fprintf(options_.text, "%.*s\n", static_cast<int>(line.size()),
               line.data());
  std::fflush(options_.text);
}

void ProgressBar::Clear() {
  absl::MutexLock lock(&mu_);
  ClearLocked();
}

void ProgressBar::ClearLocked() {
  last_drawn_ = absl::InfinitePast();
  if (!shown_) return;
  shown_ = false;
  std::fputs(kEraseLine, options_.out);
  std::fflush(options_.out);
}

}  // namespace miniray::ml
