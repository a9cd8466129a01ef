#include "tests/tools/pty_program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

// Ctrl-C is for the program: the shell lives on.
constexpr char kScript[] =
    "trap : INT TERM; echo before; \"$0\" \"$@\"; code=$?; "
    "echo; echo \"code $code\"; read -r line";

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct winsize Size(int rows, int columns) {
  struct winsize size = {};
  size.ws_row = static_cast<unsigned short>(rows);
  size.ws_col = static_cast<unsigned short>(columns);
  return size;
}

}  // namespace

PtyProgram::PtyProgram(const std::string& path,
                       const std::vector<std::string>& args, int rows,
                       int columns, const std::string& term)
    : terminal_(rows, columns) {
  std::vector<std::string> words = {"/bin/sh", "-c", kScript, path};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<std::string> environment = {"TERM=" + term};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!absl::StartsWith(*variable, "TERM=")) {
      environment.emplace_back(*variable);
    }
  }
  const std::vector<char*> argv = Pointers(&words);
  const std::vector<char*> envp = Pointers(&environment);
  struct winsize size = Size(rows, columns);
  int master = -1;
  shell_ = forkpty(&master, nullptr, nullptr, &size);
  if (shell_ == 0) {
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  EXPECT_GT(shell_, 0) << std::strerror(errno);
  master_ = ScopedFd(master);
  fcntl(master, F_SETFD, FD_CLOEXEC);
}

PtyProgram::~PtyProgram() {
  if (shell_ <= 0) return;
  // The shell's whole group, the program too.
  kill(-shell_, SIGKILL);
  waitpid(shell_, nullptr, 0);
}

void PtyProgram::Type(absl::string_view keys) {
  EXPECT_EQ(write(master_.get(), keys.data(), keys.size()),
            static_cast<ssize_t>(keys.size()));
}

void PtyProgram::Resize(int rows, int columns) {
  terminal_.Resize(rows, columns);
  struct winsize size = Size(rows, columns);
  EXPECT_EQ(ioctl(master_.get(), TIOCSWINSZ, &size), 0);
}

bool PtyProgram::Await(
    const std::function<bool(const FakeTerminal&)>& condition,
    absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition(terminal_)) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd fd = {master_.get(), POLLIN, 0};
    if (left <= 0 || poll(&fd, 1, static_cast<int>(left)) <= 0) return false;
    char buffer[4096];
    const ssize_t n = read(master_.get(), buffer, sizeof(buffer));
    if (n <= 0) return false;
    terminal_.Feed(absl::string_view(buffer, static_cast<size_t>(n)));
    bytes_.append(buffer, static_cast<size_t>(n));
  }
  return true;
}

bool PtyProgram::AwaitText(const std::string& text) {
  const bool came = Await([&text](const FakeTerminal& terminal) {
    return absl::StrContains(terminal.Text(), text);
  });
  EXPECT_TRUE(came) << "no '" << text << "' on the terminal, but:\n"
                    << terminal_.Text();
  return came;
}

struct termios PtyProgram::Settings() const {
  struct termios settings = {};
  EXPECT_EQ(tcgetattr(master_.get(), &settings), 0);
  return settings;
}

bool IsCooked(const struct termios& settings) {
  return (settings.c_lflag & ICANON) != 0 && (settings.c_lflag & ECHO) != 0;
}

}  // namespace miniray
