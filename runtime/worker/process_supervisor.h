// Starts and watches the processes of one worker daemon: actors, templates that
// actors are forked from, drivers of submitted jobs.
//
// Each leads a process group of its own; most inherit one end of a socket,
// whose end tells either side that the other died. Ends are seen through
// pidfds, not by polling. What a process started goes with it, also where it
// left the group: the environment of all carries a mark, and the daemon is the
// subreaper to which orphans are handed.

#ifndef MINIRAY_RUNTIME_WORKER_PROCESS_SUPERVISOR_H_
#define MINIRAY_RUNTIME_WORKER_PROCESS_SUPERVISOR_H_

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/base/framed_socket.h"
#include "runtime/worker/guardian.h"
#include "runtime/worker/output_capture.h"

namespace miniray {

// How a process finds its end of the socket.
inline constexpr char kActorFdVariable[] = "MINIRAY_ACTOR_FD";
inline constexpr char kTemplateFdVariable[] = "MINIRAY_TEMPLATE_FD";

// Thread-safe.
class ProcessSupervisor {
 public:
  struct Options {
    // This process has no other children: those that are handed to it are
    // reaped.
    bool reap_orphans = false;
  };
  struct Command {
    std::string key;                         // Names the process; unique.
    std::string executable;                  // Path.
    std::vector<std::string> args;           // From argv[0] on.
    std::map<std::string, std::string> env;  // On top of the daemon's own.
    std::string working_dir;                 // Empty: the daemon's.
    // Where stdout and stderr go; null: nowhere.
    std::shared_ptr<OutputCapture::Stream> output;
    // Variable that names the process's end of the socket; empty: no socket.
    std::string socket_variable;
    std::string first_message;  // Sent over the socket, if any.
    // The mark's place is long enough for that of any other process: see
    // ForkActor.
    bool pad_mark = false;
    // Makes the process in another way, and returns its pid: that of a child of
    // this one, which leads a process group. It takes the socket and the output
    // (-1: none); what is above about running a program is then unused. Called
    // without a lock.
    std::function<absl::StatusOr<pid_t>(int socket, int output)> spawn;
    // A message from the process. Called from the supervisor's thread, without
    // its lock.
    std::function<void(pid_t pid, const std::string& message)> on_message;
    // The process has ended, what it started with it, and its output is read.
    // Called without a lock. `wait_status` is waitpid's.
    std::function<void(int wait_status)> on_exit;
  };

  static absl::StatusOr<std::unique_ptr<ProcessSupervisor>> Create(
      Options options);
  // Kills what still runs.
  ~ProcessSupervisor();

  // Starts a process; the callbacks tell what becomes of it. Errors: those of
  // the system, and why the executable cannot run here.
  absl::Status Start(const Command& command);

  // Queues a message to a process, with descriptors beside it. Never blocks.
  // Errors: NOT_FOUND, no such process. RESOURCE_EXHAUSTED, it does not read.
  absl::Status Send(const std::string& key, absl::string_view message,
                    std::vector<ScopedFd> fds = {});

  // SIGTERM to the process group now, SIGKILL after `grace`. Unknown keys are
  // ignored (the process may just have ended).
  void Stop(const std::string& key, absl::Duration grace);

  // Stops all and returns when none is left. Nothing can be started afterwards.
  void StopAll(absl::Duration grace);

  // The pid of a process; 0 where it is unknown.
  pid_t PidOf(const std::string& key);

  // What the environment of a process says, and of all that it starts.
  std::string MarkOf(const std::string& key) const;

 private:
  struct Outgoing {
    std::string bytes;  // Framed.
    size_t sent = 0;
    std::vector<ScopedFd> fds;
  };
  struct Process {
    Command command;  // Without the first message.
    pid_t pid = 0;
    ScopedFd pidfd;
    ScopedFd socket;
    // Guarded by mu_:
    std::deque<Outgoing> outgoing;
    size_t outgoing_bytes = 0;
    absl::Time kill_at = absl::InfiniteFuture();
    bool reaped = false;  // Only its output is still read.
    // Of the loop's thread alone:
    bool socket_ended = false;
    FrameParser parser;
  };

  explicit ProcessSupervisor(Options options);
  std::string MarkEntry() const;  // How it stands in an environment.
  // Makes the process and enters it.
  absl::Status Run(const std::shared_ptr<Process>& process,
                   const Command& command, ScopedFd theirs);
  absl::Status Adopt(const std::shared_ptr<Process>& process, pid_t pid)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Queue(Process* process, absl::string_view message,
                     std::vector<ScopedFd> fds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Loop();
  void Wake();
  void WriteSocket(const std::shared_ptr<Process>& process);
  void ReadSocket(const std::shared_ptr<Process>& process);
  void Reap(const std::shared_ptr<Process>& process);
  // What the process started outside its group.
  void KillEscaped(const std::string& key);
  // Kills what is left of processes that have ended, and reaps orphans.
  void TendOrphans();
  std::vector<pid_t> UnknownChildren() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReplaceGuardian();

  const Options options_;
  const std::string mark_;  // Of all processes: what begins theirs.
  ScopedFd wake_;           // eventfd

  absl::Mutex mu_;
  std::unique_ptr<Guardian> guardian_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Process>> processes_
      ABSL_GUARDED_BY(mu_);
  // Processes that are there and not yet entered.
  int adopting_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;  // Nothing can be started.
  bool ending_ ABSL_GUARDED_BY(mu_) = false;  // The loop is to end.
  std::thread thread_;
};

// "exited with code 3" or "killed by signal 9 (SIGKILL)", from waitpid's
// status.
std::string DescribeExit(int wait_status);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_PROCESS_SUPERVISOR_H_
