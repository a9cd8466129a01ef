#include "ml/cli/progress_bar.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace miniray::ml {
namespace {

constexpr int kWidestBar = 30;
constexpr int kNarrowestBar = 6;
constexpr int kUsualWidth = 80;

constexpr double kLongestEta = 1e9;  // Seconds: thirty years.

// To the start of the line, and delete to its end.
constexpr char kEraseLine[] = "\r\x1b[K";

constexpr int kSignals[] = {SIGINT, SIGTERM};

// For the handler: of the bar that has clear_on_signals.
std::atomic<bool> bar_is_shown = false;

// Only what may be called in a signal handler.
void OnSignal(int number) {
  if (bar_is_shown) {
    [[maybe_unused]] const ssize_t n =
        write(STDERR_FILENO, kEraseLine, sizeof(kEraseLine) - 1);
  }
  signal(number, SIG_DFL);
  raise(number);  // Once this handler has returned.
}

void Replace(void (*present)(int), void (*with)(int)) {
  for (const int number : kSignals) {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) != 0 ||
        (action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != present) {
      continue;
    }
    action = {};
    action.sa_handler = with;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
}

void CatchSignals() { Replace(SIG_DFL, &OnSignal); }
void LeaveSignals() { Replace(&OnSignal, SIG_DFL); }

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

// "45%".
std::string Percent(double fraction) {
  // NaN fails the comparison.
  const double done = fraction > 0 ? std::min(fraction, 1.0) : 0.0;
  return absl::StrFormat("%d%%", static_cast<int>(done * 100));
}

}  // namespace

std::string RenderProgressBar(double fraction, absl::string_view left,
                              absl::string_view right, int width) {
  // NaN fails the comparison.
  const double done = fraction > 0 ? std::min(fraction, 1.0) : 0.0;
  const std::string percent = absl::StrFormat("%4s", Percent(fraction));
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

std::string TimeLeft::Text(double fraction, absl::Time now) {
  // Also where it went back: what was done is done again.
  if (!first_fraction_.has_value() || fraction < *first_fraction_) {
    first_fraction_ = fraction;
    first_time_ = now;
  }
  const double done = fraction - *first_fraction_;
  const double took = absl::ToDoubleSeconds(now - first_time_);
  // NaN fails the comparisons.
  if (!(done > 0) || !(took > 0)) return "";
  const double left =
      std::clamp((1 - fraction) * took / done, 0.0, kLongestEta);
  const auto seconds = static_cast<int64_t>(left);
  const int64_t hours = seconds / 3600, minutes = seconds / 60 % 60;
  if (hours == 0) return absl::StrFormat("eta %d:%02d", minutes, seconds % 60);
  return absl::StrFormat("eta %d:%02d:%02d", hours, minutes, seconds % 60);
}

ProgressBar::ProgressBar(Options options)
    : options_(std::move(options)),
      out_(options_.out == nullptr ? RealStderr() : options_.out),
      draws_(options_.draw.value_or(IsCapableTerminal(out_))),
      last_line_(options_.clock()) {
  if (!draws_ || out_ != RealStderr()) return;
  hook_ = std::make_unique<StderrHook>(
      [this](absl::string_view lines) { PassOn(lines); });
  if (options_.clear_on_signals) {
    on_signals_ = true;
    CatchSignals();
  }
}

ProgressBar::~ProgressBar() {
  if (on_signals_) LeaveSignals();
  // In this order: what the hook still has may be no whole line.
  Clear();
  hook_.reset();
}

void ProgressBar::Update(double fraction, absl::string_view left,
                         absl::string_view right) {
  absl::MutexLock lock(&mu_);
  const absl::Time now = options_.clock();
  if (!draws_) {
    if (now - last_line_ < options_.line_interval) return;
    PrintLocked(absl::StrCat(left, left.empty() ? "" : "  ", Percent(fraction),
                             right.empty() ? "" : "  ", right));
    return;
  }
  if (now - last_drawn_ < options_.min_interval) return;
  last_drawn_ = now;
  // A terminal wraps when the last column is filled.
  DrawLocked(RenderProgressBar(fraction, left, right, TerminalWidth(out_) - 1));
}

void ProgressBar::Print(absl::string_view line) {
  absl::MutexLock lock(&mu_);
  ClearLocked();
  PrintLocked(line);
}

void ProgressBar::Clear() {
  absl::MutexLock lock(&mu_);
  ClearLocked();
}

void ProgressBar::ClearLocked() {
  last_drawn_ = absl::InfinitePast();
  if (!shown_) return;
  shown_ = false;
  if (on_signals_) bar_is_shown = false;
  std::fputs(kEraseLine, out_);
  std::fflush(out_);
}

void ProgressBar::DrawLocked(absl::string_view line) {
  shown_ = true;
  if (on_signals_) bar_is_shown = true;
  line_ = std::string(line);
  std::fprintf(out_, "%s%s", kEraseLine, line_.c_str());
  std::fflush(out_);
}

void ProgressBar::PrintLocked(absl::string_view line) {
  last_line_ = options_.clock();
  std::fprintf(options_.text, "%.*s\n", static_cast<int>(line.size()),
               line.data());
  std::fflush(options_.text);
}

void ProgressBar::PassOn(absl::string_view lines) {
  absl::MutexLock lock(&mu_);
  if (shown_) std::fputs(kEraseLine, out_);
  std::fwrite(lines.data(), 1, lines.size(), out_);
  if (shown_) {
    DrawLocked(line_.substr(0, static_cast<size_t>(TerminalWidth(out_) - 1)));
  }
  std::fflush(out_);
}

}  // namespace miniray::ml
