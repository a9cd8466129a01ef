// Another `miniray start --block`, started by this process.

#ifndef MINIRAY_TOOLS_CLI_CHILD_H_
#define MINIRAY_TOOLS_CLI_CHILD_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "tools/cli/ready.h"

namespace miniray::cli {

// Not thread-safe. Movable. The destructor leaves the process alone.
class Child {
 public:
  enum class Mode {
    kDetached,  // A session of its own and a log; outlives this process.
    kAttached,  // Stops when this process ends.
  };

  // Runs this program with `args` ("start", flags) and --block. `what` names it
  // in messages: "the head".
  static absl::StatusOr<Child> Spawn(const std::vector<std::string>& args,
                                     Mode mode, std::string what);

  // Waits for the ready line. On failure the process is gone (see Undo).
  // interrupt_fd: -1, or what ends the wait when it becomes readable.
  //
  // Errors: ABORTED, the process's own error message, or how it ended.
  // DEADLINE_EXCEEDED. CANCELLED, interrupted.
  absl::StatusOr<ReadyMessage> AwaitReady(absl::Duration timeout,
                                          int interrupt_fd);

  // SIGTERM, SIGKILL after `grace`; returns once it is gone.
  void Stop(absl::Duration grace);

  // As Stop, where what it was to be a part of could not be started: a cluster
  // that it went on with is left as it was (kFailedStartSignal).
  void Undo(absl::Duration grace);

  // True if it is gone (see Stop) and its exit code was 0.
  bool EndedWell() const;

  // "the head was killed by signal 9 (Killed)". Only once it is gone.
  std::string HowItEnded() const;

  // Readable once the process has ended.
  int pidfd() const { return pidfd_.get(); }

 private:
  Child() = default;

  void End(int signal, absl::Duration grace);

  std::string what_;
  pid_t pid_ = 0;  // 0: gone, wait_status_ tells how.
  int wait_status_ = 0;
  ScopedFd pidfd_;
  ScopedFd ready_;
  ScopedFd lifeline_;
};

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_CHILD_H_
