#include "tools/cli/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/stop_events.h"

namespace miniray::cli {
namespace {

// For what is started in vain, beyond any time limit; internal.
constexpr absl::Duration kStopGrace = absl::Seconds(3);

// What the child gets its pipe ends as.
constexpr int kReadyFd = 3;
constexpr int kLifelineFd = 4;

struct Pipe {
  ScopedFd read;
  ScopedFd write;
};

// Both ends above the numbers that the child gets, so that putting one there
// cannot overwrite the other.
absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  Pipe low{ScopedFd(fds[0]), ScopedFd(fds[1])};
  Pipe pipe{ScopedFd(fcntl(low.read.get(), F_DUPFD_CLOEXEC, kLifelineFd + 1)),
            ScopedFd(fcntl(low.write.get(), F_DUPFD_CLOEXEC, kLifelineFd + 1))};
  if (!pipe.read.valid() || !pipe.write.valid()) {
    return ErrnoStatus(errno, "make a pipe");
  }
  return pipe;
}

absl::StatusOr<pid_t> SpawnProgram(const std::string& program,
                                   std::vector<std::string> args,
                                   const posix_spawn_file_actions_t& actions,
                                   const posix_spawnattr_t& attributes) {
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes,
                                argv.data(), environ);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("run ", program));
  return pid;
}

// poll with the time that is left; true if `fd` or `other` became readable.
bool PollUntil(int fd, int other, absl::Time deadline, pollfd (&fds)[2]) {
  while (true) {
    fds[0] = {fd, POLLIN, 0};
    fds[1] = {other, POLLIN, 0};
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    const int n =
        poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (n > 0) return true;
  }
}

}  // namespace

absl::StatusOr<Child> Child::Spawn(const std::vector<std::string>& args,
                                   Mode mode, std::string what) {
  MR_ASSIGN_OR_RETURN(const std::string program, ExecutablePath());
  MR_ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  MR_ASSIGN_OR_RETURN(Pipe lifeline, MakePipe());

  std::vector<std::string> all = {program};
  all.insert(all.end(), args.begin(), args.end());
  all.push_back("--block");
  all.push_back(absl::StrCat("--ready_fd=", kReadyFd));

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  const auto destroy = absl::MakeCleanup([&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  });
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ready.write.get(), kReadyFd);
  short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (mode == Mode::kDetached) {
    all.push_back("--detached");
    flags |= POSIX_SPAWN_SETSID;
  } else {
    all.push_back(absl::StrCat("--lifeline_fd=", kLifelineFd));
    posix_spawn_file_actions_adddup2(&actions, lifeline.read.get(),
                                     kLifelineFd);
  }
  // The child starts as from a shell, whatever this process did with signals.
  sigset_t none, all_signals;
  sigemptyset(&none);
  sigfillset(&all_signals);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all_signals);
  posix_spawnattr_setflags(&attributes, flags);

  Child child;
  child.what_ = std::move(what);
  MR_ASSIGN_OR_RETURN(child.pid_,
                      SpawnProgram(program, all, actions, attributes));
  child.pidfd_ =
      ScopedFd(static_cast<int>(syscall(SYS_pidfd_open, child.pid_, 0)));
  child.ready_ = std::move(ready.read);
  if (mode == Mode::kAttached) child.lifeline_ = std::move(lifeline.write);
  return child;
}

absl::StatusOr<ReadyMessage> Child::AwaitReady(absl::Duration timeout,
                                               int interrupt_fd) {
  const absl::Time deadline = absl::Now() + timeout;
  std::string line;
  while (line.empty() || line.back() != '\n') {
    pollfd fds[2];
    if (!PollUntil(ready_.get(), interrupt_fd, deadline, fds)) {
      Undo(kStopGrace);
      return absl::DeadlineExceededError(absl::StrCat(
          what_, " was not ready within ", absl::FormatDuration(timeout)));
    }
    if (fds[1].revents != 0) {
      Undo(kStopGrace);
      return absl::CancelledError("interrupted");
    }
    char buffer[4096];
    const ssize_t n = read(ready_.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Undo(kStopGrace);
      return absl::AbortedError(
          absl::StrCat(HowItEnded(), " before it was ready"));
    }
    line.append(buffer, static_cast<size_t>(n));
  }
  absl::StatusOr<ReadyMessage> message = FromLine(line);
  if (message.ok() && !message->error.empty()) {
    message = absl::AbortedError(message->error);
  }
  if (!message.ok()) Undo(kStopGrace);
  return message;
}

void Child::Stop(absl::Duration grace) { End(SIGTERM, grace); }

void Child::Undo(absl::Duration grace) { End(kFailedStartSignal, grace); }

void Child::End(int signal, absl::Duration grace) {
  if (pid_ == 0) return;
  kill(pid_, signal);
  lifeline_.reset();
  const absl::Time deadline = absl::Now() + grace;
  while (waitpid(pid_, &wait_status_, WNOHANG) == 0) {
    if (absl::Now() >= deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &wait_status_, 0);
      break;
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  pid_ = 0;
}

bool Child::EndedWell() const {
  return pid_ == 0 && WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 0;
}

std::string Child::HowItEnded() const {
  if (WIFSIGNALED(wait_status_)) {
    return absl::StrCat(what_, " was killed by signal ", WTERMSIG(wait_status_),
                        " (", strsignal(WTERMSIG(wait_status_)), ")");
  }
  return absl::StrCat(what_, " ended with exit code ",
                      WEXITSTATUS(wait_status_));
}

}  // namespace miniray::cli
