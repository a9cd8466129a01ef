// Runs a program on a terminal of its own, as a shell's command.

#ifndef MINIRAY_TESTS_TOOLS_PTY_PROGRAM_H_
#define MINIRAY_TESTS_TOOLS_PTY_PROGRAM_H_

#include <sys/types.h>
#include <termios.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "tests/tools/fake_terminal.h"

namespace miniray {

// The terminal shows "before", then what the program writes, then "code N",
// its exit code. The shell, and with it the terminal, stays until the end; so
// what the program leaves of the terminal can be looked at.
class PtyProgram {
 public:
  // Environment: this process's, with TERM as given.
  PtyProgram(const std::string& path, const std::vector<std::string>& args,
             int rows, int columns, const std::string& term = "xterm");
  ~PtyProgram();
  PtyProgram(const PtyProgram&) = delete;
  PtyProgram& operator=(const PtyProgram&) = delete;

  // "\x03" is Ctrl-C.
  void Type(absl::string_view keys);
  void Resize(int rows, int columns);

  // Takes in what the program writes until `condition` holds; returns whether
  // it does in time.
  bool Await(const std::function<bool(const FakeTerminal&)>& condition,
             absl::Duration timeout = absl::Seconds(30));
  bool AwaitText(const std::string& text);

  const FakeTerminal& terminal() const { return terminal_; }
  // All bytes that came.
  const std::string& bytes() const { return bytes_; }
  // How the terminal treats keys.
  struct termios Settings() const;

 private:
  pid_t shell_ = -1;
  ScopedFd master_;
  FakeTerminal terminal_;
  std::string bytes_;
};

// Whether keys are taken by lines, and shown.
bool IsCooked(const struct termios& settings);

}  // namespace miniray

#endif  // MINIRAY_TESTS_TOOLS_PTY_PROGRAM_H_
