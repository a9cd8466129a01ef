#include "runtime/worker/guardian.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"

namespace miniray {
namespace {

// A node runs thousands of actors at most.
constexpr int kMaxGroups = 16384;

// The descriptor that the guardian reads.
constexpr int kSocketFd = 3;

// Forked from a process with threads: only system calls from here on, and no
// memory but this.
pid_t groups[kMaxGroups];

[[noreturn]] void Guard(int socket) {
  setsid();  // A Ctrl-C or a kill of the daemon's group is not for us.
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  prctl(PR_SET_NAME, "miniray-guard", 0, 0, 0);
  // What we inherited must not be kept open beyond the daemon.
  if (dup2(socket, kSocketFd) != kSocketFd) _exit(1);
  close(0);
  close(1);
  close(2);
  syscall(SYS_close_range, kSocketFd + 1, ~0U, 0);
  int count = 0;
  while (true) {
    pid_t message = 0;
    const ssize_t n = read(kSocketFd, &message, sizeof(message));
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof(message)) break;  // The daemon is gone.
    if (message > 0 && count < kMaxGroups) {
      groups[count++] = message;
    } else if (message < 0) {
      for (int i = 0; i < count; ++i) {
        if (groups[i] != -message) continue;
        groups[i] = groups[--count];
        break;
      }
    }
  }
  for (int i = 0; i < count; ++i) kill(-groups[i], SIGKILL);
  _exit(0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Guardian>> Guardian::Start() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  ScopedFd theirs(fds[0]), ours(fds[1]);
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "fork");
  if (pid == 0) Guard(theirs.get());
  return absl::WrapUnique(new Guardian(pid, std::move(ours)));
}

Guardian::~Guardian() {
  socket_.reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::Watch(pid_t group) { Send(group); }
void Guardian::Forget(pid_t group) { Send(-group); }

void Guardian::Send(pid_t message) {
  while (send(socket_.get(), &message, sizeof(message),
              MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    PLOG(ERROR) << "the guardian process does not listen";
    return;
  }
}

}  // namespace miniray
