// Starts and watches the actor processes of one worker daemon.
//
// Each process leads a process group of its own and inherits one end of a
// socket: the daemon sends what to host, the actor answers that it is ready,
// and the end of the socket tells either side that the other died. Ends are
// seen through pidfds, not by polling.

#ifndef MINIRAY_RUNTIME_WORKER_PROCESS_SUPERVISOR_H_
#define MINIRAY_RUNTIME_WORKER_PROCESS_SUPERVISOR_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/base/framed_socket.h"
#include "runtime/worker/guardian.h"

namespace miniray {

// How the actor process finds its end of the socket.
inline constexpr char kActorFdVariable[] = "MINIRAY_ACTOR_FD";

// Thread-safe.
class ProcessSupervisor {
 public:
  struct Command {
    std::string key;                         // Names the process; unique.
    std::string executable;                  // Path.
    std::vector<std::string> args;           // From argv[0] on.
    std::map<std::string, std::string> env;  // On top of the daemon's own.
    std::string log_file;       // stdout and stderr are appended here.
    std::string first_message;  // Sent over the socket.
    // Both are called from the supervisor's thread, without its lock.
    // A message from the process.
    std::function<void(pid_t pid, const std::string& message)> on_message;
    // The process has ended, and its process group with it. `cause` says how:
    // "killed by signal 9 (SIGKILL)", "exited with code 3".
    std::function<void(const std::string& cause)> on_exit;
  };

  static absl::StatusOr<std::unique_ptr<ProcessSupervisor>> Create();
  // Kills what still runs.
  ~ProcessSupervisor();

  // Starts a process; the callbacks tell what becomes of it. Errors: those of
  // the system, and why the executable cannot run here.
  absl::Status Start(const Command& command);

  // SIGTERM to the process group now, SIGKILL after `grace`. Unknown keys are
  // ignored (the process may just have ended).
  void Stop(const std::string& key, absl::Duration grace);

  // Stops all and returns when none is left. Nothing can be started afterwards.
  void StopAll(absl::Duration grace);

 private:
  struct Process {
    Command command;  // Without the first message.
    pid_t pid = 0;
    ScopedFd pidfd;
    // Stays open as long as the process is known: Start may be writing.
    ScopedFd socket;
    // Of the loop's thread alone:
    bool socket_ended = false;
    FrameParser parser;
    absl::Time kill_at = absl::InfiniteFuture();
  };

  ProcessSupervisor() = default;
  void Loop();
  void Wake();
  void ReadSocket(const std::shared_ptr<Process>& process);
  void Reap(const std::shared_ptr<Process>& process);

  std::unique_ptr<Guardian> guardian_;
  ScopedFd wake_;  // eventfd
  absl::Mutex mu_;
  std::map<std::string, std::shared_ptr<Process>> processes_
      ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;  // Nothing can be started.
  bool ending_ ABSL_GUARDED_BY(mu_) = false;  // The loop is to end.
  std::thread thread_;
};

// "exited with code 3" or "killed by signal 9 (SIGKILL)", from waitpid's
// status.
std::string DescribeExit(int wait_status);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_PROCESS_SUPERVISOR_H_
