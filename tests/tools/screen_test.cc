// A screen on a terminal of the test's, in the test's own process.

#include "tools/cli/screen.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/tools/fake_terminal.h"

namespace miniray::cli {
namespace {

using Kind = Screen::Event::Kind;

constexpr absl::Duration kPatience = absl::Seconds(30);

class ScreenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("TERM", "xterm", 1);
    struct winsize size = {};
    size.ws_row = 5;
    size.ws_col = 30;
    int master = -1, slave = -1;
    ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
    master_ = ScopedFd(master);
    slave_ = ScopedFd(slave);
  }

  std::unique_ptr<Screen> Open() {
    auto screen = Screen::Open(slave_.get(), slave_.get());
    EXPECT_TRUE(screen.ok()) << screen.status();
    return screen.ok() ? *std::move(screen) : nullptr;
  }

  // Takes in what is written until the terminal shows `text`, and nothing else.
  bool Shows(const std::string& text) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (terminal_.Text() != text && absl::Now() < deadline) {
      pollfd fd = {master_.get(), POLLIN, 0};
      if (poll(&fd, 1, 100) <= 0) continue;
      char buffer[4096];
      const ssize_t n = read(master_.get(), buffer, sizeof(buffer));
      if (n <= 0) break;
      bytes_ += static_cast<size_t>(n);
      terminal_.Feed(absl::string_view(buffer, static_cast<size_t>(n)));
    }
    EXPECT_EQ(terminal_.unknown(), "");
    return terminal_.Text() == text;
  }

  struct termios Settings() {
    struct termios settings = {};
    EXPECT_EQ(tcgetattr(slave_.get(), &settings), 0);
    return settings;
  }

  static Screen::Event Next(Screen* screen, int wake_fd = -1) {
    return screen->Wait(absl::Now() + kPatience, wake_fd);
  }

  ScopedFd master_;
  ScopedFd slave_;
  FakeTerminal terminal_{5, 30};
  size_t bytes_ = 0;
};

TEST_F(ScreenTest, TakesTheTerminalAndGivesItBack) {
  const struct termios before = Settings();
  ASSERT_EQ(write(slave_.get(), "before", 6), 6);
  {
    const auto screen = Open();
    ASSERT_NE(screen, nullptr);
    EXPECT_TRUE(screen->Draw({.lines = {"one", "two"}}).ok());
    EXPECT_TRUE(Shows("one\ntwo"));
    EXPECT_TRUE(terminal_.on_other_screen());
    EXPECT_FALSE(terminal_.shows_cursor());
    EXPECT_FALSE(terminal_.wraps());
    const struct termios now = Settings();
    EXPECT_EQ(now.c_lflag & (ICANON | ECHO), 0u);
    EXPECT_NE(now.c_lflag & ISIG, 0u);  // Ctrl-C is a signal still.
  }
  EXPECT_TRUE(Shows("before"));
  EXPECT_FALSE(terminal_.on_other_screen());
  EXPECT_TRUE(terminal_.shows_cursor());
  EXPECT_TRUE(terminal_.wraps());
  EXPECT_EQ(terminal_.cursor_column(), 6);
  EXPECT_EQ(Settings().c_lflag, before.c_lflag);
  EXPECT_EQ(Settings().c_cc[VMIN], before.c_cc[VMIN]);
}

TEST_F(ScreenTest, WhatIsThereIsNotWrittenAgain) {
  const auto screen = Open();
  ASSERT_NE(screen, nullptr);
  EXPECT_TRUE(screen->Draw({.lines = {"one"}}).ok());
  ASSERT_TRUE(Shows("one"));
  const size_t before = bytes_;
  EXPECT_TRUE(screen->Draw({.lines = {"one"}}).ok());
  const Frame other = {.lines = {"two"}};
  EXPECT_TRUE(screen->Draw(other).ok());
  ASSERT_TRUE(Shows("two"));
  EXPECT_EQ(bytes_ - before, Paint(other, screen->size()).size());
}

TEST_F(ScreenTest, KeysComeOneByOneAndAreNotShown) {
  const auto screen = Open();
  ASSERT_NE(screen, nullptr);
  EXPECT_TRUE(screen->Draw({.lines = {"one"}}).ok());
  ASSERT_TRUE(Shows("one"));
  const size_t before = bytes_;
  ASSERT_EQ(write(master_.get(), "s", 1), 1);
  const Screen::Event event = Next(screen.get());
  EXPECT_EQ(event.kind, Kind::kKey);
  EXPECT_EQ(event.key, 's');
  // An echo would have come before this.
  const Frame other = {.lines = {"two"}};
  EXPECT_TRUE(screen->Draw(other).ok());
  ASSERT_TRUE(Shows("two"));
  EXPECT_EQ(bytes_ - before, Paint(other, screen->size()).size());
}

TEST_F(ScreenTest, AnArrowIsNoKeyOfOurs) {
  const auto screen = Open();
  ASSERT_NE(screen, nullptr);
  ASSERT_EQ(write(master_.get(), "\x1b[A", 3), 3);
  EXPECT_EQ(screen->Wait(absl::Now() + absl::Milliseconds(50), -1).kind,
            Kind::kTime);
}

TEST_F(ScreenTest, SignalsAreEvents) {
  const auto screen = Open();
  ASSERT_NE(screen, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    ASSERT_EQ(raise(number), 0);
    const Screen::Event event = Next(screen.get());
    EXPECT_EQ(event.kind, Kind::kStop);
    EXPECT_EQ(event.signal, number);
  }
}

TEST_F(ScreenTest, AfterwardsSignalsDoWhatTheyDidBefore) {
  struct sigaction before = {}, during = {}, after = {};
  sigaction(SIGINT, nullptr, &before);
  {
    const auto screen = Open();
    sigaction(SIGINT, nullptr, &during);
  }
  sigaction(SIGINT, nullptr, &after);
  EXPECT_NE(during.sa_handler, before.sa_handler);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

TEST_F(ScreenTest, AnotherSizeIsSeen) {
  const auto screen = Open();
  ASSERT_NE(screen, nullptr);
  EXPECT_EQ(screen->size().rows, 5);
  EXPECT_EQ(screen->size().columns, 30);
  const Frame frame = {.lines = {"a", "b", "a long line here", "d", "e"}};
  EXPECT_TRUE(screen->Draw(frame).ok());
  ASSERT_TRUE(Shows("a\nb\na long line here\nd\ne"));
  struct winsize size = {};
  size.ws_row = 3;
  size.ws_col = 6;
  ASSERT_EQ(ioctl(master_.get(), TIOCSWINSZ, &size), 0);
  terminal_.Resize(3, 6);
  ASSERT_EQ(raise(SIGWINCH), 0);  // The terminal is not this process's own.
  EXPECT_EQ(Next(screen.get()).kind, Kind::kResize);
  EXPECT_EQ(screen->size().rows, 3);
  EXPECT_TRUE(screen->Draw(frame).ok());
  EXPECT_TRUE(Shows("a\nb\n... an")) << terminal_.Text();
}

TEST_F(ScreenTest, WakesUp) {
  const auto screen = Open();
  ASSERT_NE(screen, nullptr);
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const ScopedFd read_end(fds[0]), write_end(fds[1]);
  EXPECT_EQ(screen->Wait(absl::Now() + absl::Milliseconds(20), fds[0]).kind,
            Kind::kTime);
  ASSERT_EQ(write(fds[1], "x", 1), 1);
  EXPECT_EQ(Next(screen.get(), fds[0]).kind, Kind::kWake);
}

TEST_F(ScreenTest, ATerminalThatIsGoneEndsIt) {
  const auto screen = Open();
  ASSERT_NE(screen, nullptr);
  master_.reset();
  const Screen::Event event = Next(screen.get());
  EXPECT_EQ(event.kind, Kind::kStop);
  EXPECT_EQ(event.signal, SIGHUP);
  EXPECT_FALSE(screen->Draw({.lines = {"nobody sees it"}}).ok());
}

TEST_F(ScreenTest, NotEveryFileIsAScreen) {
  EXPECT_TRUE(IsScreen(slave_.get()));
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const ScopedFd read_end(fds[0]), write_end(fds[1]);
  EXPECT_FALSE(IsScreen(fds[1]));
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(IsScreen(slave_.get()));
  unsetenv("TERM");
  EXPECT_FALSE(IsScreen(slave_.get()));
}

TEST_F(ScreenTest, WithoutKeysWhereTheInputIsNoTerminal) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const ScopedFd read_end(fds[0]);
  ScopedFd write_end(fds[1]);
  const auto screen = Screen::Open(fds[0], slave_.get());
  ASSERT_TRUE(screen.ok()) << screen.status();
  write_end.reset();  // Its end is no end of the screen.
  EXPECT_EQ((*screen)->Wait(absl::Now() + absl::Milliseconds(20), -1).kind,
            Kind::kTime);
  EXPECT_TRUE((*screen)->Draw({.lines = {"seen"}}).ok());
  EXPECT_TRUE(Shows("seen"));
}

}  // namespace
}  // namespace miniray::cli
