// What tells a process in the foreground to stop.

#ifndef MINIRAY_TOOLS_CLI_STOP_EVENTS_H_
#define MINIRAY_TOOLS_CLI_STOP_EVENTS_H_

#include <signal.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/files.h"

namespace miniray::cli {

// Sent by whoever starts a process that must end because all of it could not be
// started: unlike the others it leaves what was there before as it was.
inline constexpr int kFailedStartSignal = SIGUSR1;

// Catches SIGINT, SIGTERM, kFailedStartSignal and (unless ignored, as by nohup)
// SIGHUP from Install on; SIGPIPE does nothing from then on. Handlers, not a
// mask and not SIG_IGN: child processes would inherit those.
//
// One object a process, not thread-safe.
class StopEvents {
 public:
  // lifeline_fd: -1, or closed by the destructor.
  static absl::StatusOr<StopEvents> Install(int lifeline_fd);

  enum class Kind { kSignal, kFailedStart, kLifelineEnded, kChildEnded };
  struct Event {
    Kind kind;
    std::string what;  // "SIGTERM", "its lifeline ended", ...
  };

  // Readable once a signal has come; for those who wait for something else.
  int signal_fd() const { return signals_.get(); }

  // True if Wait would return at once.
  bool Pending() const;

  // Blocks until there is a reason to stop. child_pidfd: -1, or a process whose
  // end is a reason as well.
  Event Wait(int child_pidfd = -1);

 private:
  StopEvents(ScopedFd signals, ScopedFd lifeline)
      : signals_(std::move(signals)), lifeline_(std::move(lifeline)) {}

  ScopedFd signals_;
  ScopedFd lifeline_;
};

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_STOP_EVENTS_H_
