// A small process beside a worker daemon that outlives it, however it dies,
// just long enough to kill the process groups of its actors, and what they
// started outside them.
//
// An actor also ends itself when its daemon is gone, but not while it is
// stopped (SIGSTOP) or before it runs code of ours. A death signal of the
// kernel (PR_SET_PDEATHSIG) would reach the actor alone, and leave what it
// started.

#ifndef MINIRAY_RUNTIME_WORKER_GUARDIAN_H_
#define MINIRAY_RUNTIME_WORKER_GUARDIAN_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/files.h"

namespace miniray {

// As ps shows it.
inline constexpr char kGuardianName[] = "miniray-guard";

// Thread-safe.
class Guardian {
 public:
  // Forks. `mark`: how an environment entry of what is to die with us begins,
  // "MINIRAY_PROCESS=...". Errors: those of the system.
  static absl::StatusOr<std::unique_ptr<Guardian>> Start(
      const std::string& mark);

  // Lets go: kills the groups that are still watched, ends and reaps the
  // process.
  ~Guardian();

  // From now on the group dies with us.
  void Watch(pid_t group);
  // The group has ended; its number may be used again.
  void Forget(pid_t group);

  pid_t pid() const { return pid_; }
  // Readable once the process has ended.
  int pidfd() const { return pidfd_.get(); }

 private:
  Guardian(pid_t pid, ScopedFd pidfd, ScopedFd socket)
      : pid_(pid), pidfd_(std::move(pidfd)), socket_(std::move(socket)) {}
  void Send(pid_t message);

  const pid_t pid_;
  const ScopedFd pidfd_;
  ScopedFd socket_;  // Its end tells the guardian of ours.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_GUARDIAN_H_
