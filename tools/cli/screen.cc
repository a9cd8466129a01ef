#include "tools/cli/screen.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "absl/memory/memory.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace miniray::cli {
namespace {

// The other screen, no cursor, no wrapping of long lines; and back.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr char kLeave[] = "\x1b[?7h\x1b[?25h\x1b[?1049l";

constexpr int kSignals[] = {SIGINT,  SIGTERM, SIGHUP,
                            SIGQUIT, SIGTSTP, SIGWINCH};

// Where the handler writes.
std::atomic<int> g_signal_pipe = -1;

void OnSignal(int number) {
  const int saved_errno = errno;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t n = write(g_signal_pipe, &byte, 1);
  errno = saved_errno;
}

void SetAction(int number, void (*handler)(int), struct sigaction* old) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, old);
}

int MillisecondsUntil(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) return -1;
  const int64_t left = absl::ToInt64Milliseconds(
      absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3600 * 1000));
}

}  // namespace

bool IsScreen(int fd) {
  const char* const kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' &&
         absl::string_view(kind) != "dumb" && isatty(fd) == 1;
}

absl::StatusOr<std::unique_ptr<Screen>> Screen::Open(int in, int out) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "make a pipe");
  }
  g_signal_pipe = fds[1];  // Stays open: the handler may run to the end.
  auto screen = absl::WrapUnique(
      new Screen(isatty(in) == 1 ? in : -1, out, ScopedFd(fds[0])));
  if (screen->in_ >= 0 && tcgetattr(screen->in_, &screen->before_) != 0) {
    return ErrnoStatus(errno, "ask the terminal how it is set");
  }
  screen->Enter();
  return screen;
}

Screen::Screen(int in, int out, ScopedFd signals)
    : in_(in), out_(out), signals_(std::move(signals)) {
  for (const int number : kSignals) {
    struct sigaction old = {};
    if (sigaction(number, nullptr, &old) != 0) continue;
    // As by nohup.
    if (old.sa_handler == SIG_IGN && number != SIGWINCH) continue;
    SetAction(number, &OnSignal, &old);
    old_actions_.emplace_back(number, old);
  }
}

Screen::~Screen() {
  Leave();
  for (const auto& [number, action] : old_actions_) {
    sigaction(number, &action, nullptr);
  }
}

ScreenSize Screen::size() const {
  struct winsize size = {};
  if (ioctl(out_, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 ||
      size.ws_col == 0) {
    return {};
  }
  return {size.ws_row, size.ws_col};
}

absl::Status Screen::Draw(const Frame& frame) {
  const std::string text = Paint(frame, size());
  if (text == shown_) return absl::OkStatus();
  shown_ = text;
  return Write(text);
}

Screen::Event Screen::Wait(absl::Time deadline, int wake_fd) {
  while (true) {
    // poll skips the negative ones.
    pollfd fds[] = {
        {signals_.get(), POLLIN, 0}, {in_, POLLIN, 0}, {wake_fd, POLLIN, 0}};
    const int ready = poll(fds, 3, MillisecondsUntil(deadline));
    if (ready < 0) continue;  // EINTR
    unsigned char number = 0;
    if (fds[0].revents != 0 && read(signals_.get(), &number, 1) == 1) {
      if (number != SIGWINCH && number != SIGTSTP) {
        return {Event::Kind::kStop, 0, number};
      }
      if (number == SIGTSTP) Suspend();
      shown_.clear();
      return {Event::Kind::kResize};
    }
    if (fds[1].revents != 0) {
      char keys[64];
      const ssize_t n = read(in_, keys, sizeof(keys));
      if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        return {Event::Kind::kStop, 0, SIGHUP};
      }
      // What begins so is an arrow or the like: no key of ours.
      if (n > 0 && keys[0] != '\x1b') return {Event::Kind::kKey, keys[0]};
      continue;
    }
    if (fds[2].revents != 0) return {Event::Kind::kWake};
    if (absl::Now() >= deadline) return {Event::Kind::kTime};
  }
}

void Screen::Enter() {
  if (entered_) return;
  entered_ = true;
  if (in_ >= 0) {
    struct termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    tcsetattr(in_, TCSADRAIN, &keys);
  }
  Write(kEnter).IgnoreError();  // Draw will tell.
}

void Screen::Leave() {
  if (!entered_) return;
  entered_ = false;
  Write(kLeave).IgnoreError();
  if (in_ >= 0) tcsetattr(in_, TCSADRAIN, &before_);
}

void Screen::Suspend() {
  Leave();
  struct sigaction ours = {};
  SetAction(SIGTSTP, SIG_DFL, &ours);
  raise(SIGTSTP);  // Returns when the process goes on.
  sigaction(SIGTSTP, &ours, nullptr);
  Enter();
}

absl::Status Screen::Write(const std::string& text) {
  absl::string_view left = text;
  while (!left.empty()) {
    const ssize_t n = write(out_, left.data(), left.size());
    if (n >= 0) {
      left.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd fd = {out_, POLLOUT, 0};
      poll(&fd, 1, -1);
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, "write to the terminal");
    }
  }
  return absl::OkStatus();
}

}  // namespace miniray::cli
