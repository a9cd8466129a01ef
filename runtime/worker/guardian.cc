#include "runtime/worker/guardian.h"

#include <dirent.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"

namespace miniray {
namespace {

// A node runs thousands of actors at most.
constexpr int kMaxGroups = 16384;

// The descriptor that the guardian reads.
constexpr int kSocketFd = 3;

// A process that starts others faster than they are killed gets away.
constexpr int kMaxSweeps = 20;

// Forked from a process with threads: only system calls from here on, and no
// memory but this.
pid_t groups[kMaxGroups];
char mark[256];
char bytes[256 << 10];
char entries[32 << 10];

// Reads /proc/PID/NAME into `bytes`; returns how much of it.
size_t ReadProc(const char* pid, const char* name) {
  char path[64] = "/proc/";
  size_t at = strlen(path);
  for (const char* text : {pid, "/", name}) {
    const size_t size = strlen(text);
    if (at + size + 1 > sizeof(path)) return 0;
    memcpy(path + at, text, size + 1);
    at += size;
  }
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t done = 0;
  ssize_t n;
  while (done < sizeof(bytes) &&
         (n = read(fd, bytes + done, sizeof(bytes) - done)) > 0) {
    done += static_cast<size_t>(n);
  }
  close(fd);
  return done;
}

bool IsMarked(const char* pid) {
  const size_t size = ReadProc(pid, "environ");
  const size_t mark_size = strlen(mark);
  for (size_t i = 0; i + mark_size <= size;) {
    if (memcmp(bytes + i, mark, mark_size) == 0) {
      // Other guardians end by themselves, once they have done their work.
      const size_t name = ReadProc(pid, "comm");
      return name != sizeof(kGuardianName) ||
             memcmp(bytes, kGuardianName, sizeof(kGuardianName) - 1) != 0;
    }
    while (i < size && bytes[i] != '\0') ++i;
    ++i;
  }
  return false;
}

// Kills all processes that carry the mark; false if there were none.
bool Sweep() {
  const int dir = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return false;
  bool killed = false;
  while (true) {
    const long n = syscall(SYS_getdents64, dir, entries, sizeof(entries));
    if (n <= 0) break;
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      pid_t pid = 0;
      const char* digit = entry->d_name;
      while (*digit >= '0' && *digit <= '9') pid = 10 * pid + (*digit++ - '0');
      if (*digit != '\0' || pid <= 1 || pid == getpid()) continue;
      if (IsMarked(entry->d_name)) killed |= kill(pid, SIGKILL) == 0;
    }
  }
  close(dir);
  return killed;
}

[[noreturn]] void Guard(int socket) {
  setsid();  // A Ctrl-C or a kill of the daemon's group is not for us.
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  prctl(PR_SET_NAME, kGuardianName, 0, 0, 0);
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
  for (int i = 0; i < kMaxSweeps && Sweep(); ++i) {
  }
  _exit(0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Guardian>> Guardian::Start(
    const std::string& own_mark) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  ScopedFd theirs(fds[0]), ours(fds[1]);
  // All signals stay blocked: a handler of ours must not run there.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const pid_t pid = fork();
  if (pid == 0) {
    memcpy(mark, own_mark.c_str(),
           std::min(own_mark.size() + 1, sizeof(mark) - 1));
    Guard(theirs.get());
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (pid < 0) return ErrnoStatus(error, "fork");
  // glibc 2.36 declares pidfd_open without C linkage.
  ScopedFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) return ErrnoStatus(errno, "pidfd_open");
  return absl::WrapUnique(new Guardian(pid, std::move(pidfd), std::move(ours)));
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
