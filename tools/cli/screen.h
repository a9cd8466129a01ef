// A terminal that a verb draws on as a whole, and gives back as it was.

#ifndef MINIRAY_TOOLS_CLI_SCREEN_H_
#define MINIRAY_TOOLS_CLI_SCREEN_H_

#include <signal.h>
#include <termios.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "tools/cli/frame.h"

namespace miniray::cli {

// Whether `fd` is a terminal that can be drawn on ($TERM is set, and not
// "dumb").
bool IsScreen(int fd);

// While it lives, the terminal shows another screen, without a cursor, and keys
// come one by one and are not shown; signals that end or stop this process, and
// changes of the size, come as events. The destructor undoes it all; so does a
// stop by Ctrl-Z, until the process goes on.
//
// One object a process, not thread-safe.
class Screen {
 public:
  // in: where keys come from; where that is no terminal, there are none. Both
  // stay the caller's. Errors: of the system.
  static absl::StatusOr<std::unique_ptr<Screen>> Open(int in, int out);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  ScreenSize size() const;

  // Shows the frame; writes nothing where that would change nothing. Errors:
  // the terminal is gone.
  absl::Status Draw(const Frame& frame);

  struct Event {
    enum class Kind {
      kTime,    // It is `deadline`.
      kWake,    // wake_fd is readable.
      kKey,     // `key` was pressed.
      kResize,  // Or all of the screen has to be drawn for another reason.
      kStop,    // By `signal`, or (SIGHUP) since the terminal is gone.
    };
    Kind kind;
    char key = 0;
    int signal = 0;
  };
  // Waits for the next one. wake_fd: -1, or the caller's.
  Event Wait(absl::Time deadline, int wake_fd);

 private:
  Screen(int in, int out, ScopedFd signals);

  void Enter();
  void Leave();
  void Suspend();
  absl::Status Write(const std::string& text);

  const int in_;  // -1: no keys.
  const int out_;
  ScopedFd signals_;
  struct termios before_ = {};
  bool entered_ = false;
  std::string shown_;
  std::vector<std::pair<int, struct sigaction>> old_actions_;
};

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_SCREEN_H_
