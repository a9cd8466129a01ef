#include "runtime/worker/process_supervisor.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

extern char** environ;

namespace miniray {
namespace {

// Between the end of a process's socket and that of the process.
constexpr absl::Duration kClosedSocketGrace = absl::Seconds(5);

// What the child needs, prepared before fork: afterwards only system calls are
// allowed, since other threads may have held any lock.
struct ChildPlan {
  const char* executable;
  char* const* argv;
  char* const* envp;
  int socket;
  int log;
  int null;
  int error_pipe;
};

[[noreturn]] void RunChild(const ChildPlan& plan) {
  auto fail = [&] {
    const int error = errno;
    // The parent reads it; a short write cannot happen on an empty pipe.
    if (write(plan.error_pipe, &error, sizeof(error)) < 0) _exit(127);
    _exit(127);
  };
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal : {SIGINT, SIGTERM, SIGPIPE, SIGHUP, SIGCHLD}) {
    ::signal(signal, SIG_DFL);
  }
  if (dup2(plan.null, 0) < 0 || dup2(plan.log, 1) < 0 ||
      dup2(plan.log, 2) < 0 || fcntl(plan.socket, F_SETFD, 0) < 0) {
    fail();
  }
  execve(plan.executable, plan.argv, plan.envp);
  fail();
  _exit(127);
}

// glibc 2.36 declares pidfd_open without C linkage.
int OpenPidfd(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

std::vector<std::string> Environment(
    const std::map<std::string, std::string>& extra) {
  std::map<std::string, std::string> env;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* equals = strchr(*entry, '=');
    if (equals == nullptr) continue;
    env[std::string(*entry, static_cast<size_t>(equals - *entry))] = equals + 1;
  }
  for (const auto& [key, value] : extra) env[key] = value;
  std::vector<std::string> entries;
  for (const auto& [key, value] : env) {
    entries.push_back(absl::StrCat(key, "=", value));
  }
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& text : *strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    const char* name = sigabbrev_np(signal);
    return absl::StrCat("killed by signal ", signal, " (SIG",
                        name == nullptr ? "?" : name, ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status));
}

absl::StatusOr<std::unique_ptr<ProcessSupervisor>> ProcessSupervisor::Create() {
  auto supervisor = absl::WrapUnique(new ProcessSupervisor);
  MR_ASSIGN_OR_RETURN(supervisor->guardian_, Guardian::Start());
  supervisor->wake_ = ScopedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!supervisor->wake_.valid()) return ErrnoStatus(errno, "eventfd");
  supervisor->thread_ = std::thread([s = supervisor.get()] { s->Loop(); });
  return supervisor;
}

ProcessSupervisor::~ProcessSupervisor() {
  if (thread_.joinable()) {
    StopAll(absl::ZeroDuration());
    {
      absl::MutexLock lock(&mu_);
      ending_ = true;
    }
    Wake();
    thread_.join();
  }
}

void ProcessSupervisor::Wake() {
  const uint64_t one = 1;
  // The counter cannot overflow in practice; a full one wakes all the same.
  if (write(wake_.get(), &one, sizeof(one)) < 0 && errno != EAGAIN) {
    PLOG(ERROR) << "eventfd";
  }
}

absl::Status ProcessSupervisor::Start(const Command& command) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  ScopedFd ours(sockets[0]), theirs(sockets[1]);
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  ScopedFd error_read(pipes[0]), error_write(pipes[1]);
  ScopedFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  ScopedFd log(open(command.log_file.c_str(),
                    O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) {
    return ErrnoStatus(errno, absl::StrCat("open ", command.log_file));
  }
  std::map<std::string, std::string> extra = command.env;
  extra[kActorFdVariable] = absl::StrCat(theirs.get());
  std::vector<std::string> entries = Environment(extra);
  std::vector<std::string> args = command.args;
  const std::vector<char*> argv = Pointers(&args), envp = Pointers(&entries);
  const ChildPlan plan = {command.executable.c_str(),
                          argv.data(),
                          envp.data(),
                          theirs.get(),
                          log.get(),
                          null.get(),
                          error_write.get()};
  auto process = std::make_shared<Process>();
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return absl::UnavailableError("the daemon is stopping");
    // All signals stay blocked in the child until it has reset the handlers.
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const pid_t pid = fork();
    if (pid == 0) RunChild(plan);
    const int fork_error = errno;
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    if (pid < 0) return ErrnoStatus(fork_error, "fork");
    setpgid(pid, pid);  // Whoever comes first: a Stop may follow at once.
    guardian_->Watch(pid);
    process->command = command;
    process->command.first_message.clear();
    process->pid = pid;
    process->pidfd = ScopedFd(OpenPidfd(pid));
    process->socket = std::move(ours);
    if (!process->pidfd.valid()) {
      const absl::Status status = ErrnoStatus(errno, "pidfd_open");
      kill(-pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      guardian_->Forget(pid);
      return status;
    }
    error_write.reset();
    theirs.reset();
    int error = 0;
    ssize_t n;
    do {  // Ends at once: exec closes the pipe.
      n = read(error_read.get(), &error, sizeof(error));
    } while (n < 0 && errno == EINTR);
    if (n == sizeof(error)) {
      waitpid(pid, nullptr, 0);
      guardian_->Forget(pid);
      return ErrnoStatus(
          error,
          absl::StrCat("run ", command.executable,
                       error == EACCES ? " (is its folder mounted noexec? set "
                                         "MINIRAY_RUNTIME_DIR)"
                                       : ""));
    }
    processes_[command.key] = process;
  }
  const absl::Status sent =
      WriteFrame(process->socket.get(), command.first_message);
  if (!sent.ok()) LOG(WARNING) << command.key << ": " << sent;  // It died.
  Wake();
  return absl::OkStatus();
}

void ProcessSupervisor::Stop(const std::string& key, absl::Duration grace) {
  absl::MutexLock lock(&mu_);
  auto it = processes_.find(key);
  if (it == processes_.end()) return;
  kill(-it->second->pid, SIGTERM);
  it->second->kill_at = std::min(it->second->kill_at, absl::Now() + grace);
  Wake();
}

void ProcessSupervisor::StopAll(absl::Duration grace) {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  for (auto& [key, process] : processes_) {
    kill(-process->pid, SIGTERM);
    process->kill_at = std::min(process->kill_at, absl::Now() + grace);
  }
  Wake();
  auto none_left = [this] {
    mu_.AssertHeld();
    return processes_.empty();
  };
  mu_.Await(absl::Condition(&none_left));
}

void ProcessSupervisor::Loop() {
  while (true) {
    std::vector<std::shared_ptr<Process>> watched;
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
    absl::Duration timeout = absl::InfiniteDuration();
    {
      absl::MutexLock lock(&mu_);
      if (ending_ && processes_.empty()) return;
      for (auto& [key, process] : processes_) {
        watched.push_back(process);
        fds.push_back({process->pidfd.get(), POLLIN, 0});
        fds.push_back(
            {process->socket_ended ? -1 : process->socket.get(), POLLIN, 0});
        timeout = std::min(timeout, process->kill_at - absl::Now());
      }
    }
    const int wait_ms =
        timeout == absl::InfiniteDuration()
            ? -1
            : static_cast<int>(std::clamp<int64_t>(
                  absl::ToInt64Milliseconds(timeout) + 1, 0, 3600000));
    if (poll(fds.data(), fds.size(), wait_ms) < 0 && errno != EINTR) {
      PLOG(FATAL) << "poll";
    }
    if (fds[0].revents != 0) {
      uint64_t count;
      if (read(wake_.get(), &count, sizeof(count)) < 0 && errno != EAGAIN) {
        PLOG(ERROR) << "eventfd";
      }
    }
    for (size_t i = 0; i < watched.size(); ++i) {
      // What the process said last is read before its end is reported.
      if (fds[2 + 2 * i].revents != 0) ReadSocket(watched[i]);
      if (fds[1 + 2 * i].revents != 0) {
        Reap(watched[i]);
        continue;
      }
      absl::MutexLock lock(&mu_);
      if (absl::Now() >= watched[i]->kill_at) {
        kill(-watched[i]->pid, SIGKILL);
        watched[i]->kill_at = absl::Now() + absl::Seconds(1);
      }
    }
  }
}

void ProcessSupervisor::ReadSocket(const std::shared_ptr<Process>& process) {
  char buffer[65536];
  while (!process->socket_ended) {
    const ssize_t n =
        recv(process->socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n > 0) {
      process->parser.Feed(absl::string_view(buffer, static_cast<size_t>(n)));
      while (true) {
        absl::StatusOr<std::optional<std::string>> message =
            process->parser.Next();
        if (!message.ok()) {
          LOG(ERROR) << process->command.key << ": " << message.status();
          process->socket_ended = true;
          break;
        }
        if (!message->has_value()) break;
        process->command.on_message(process->pid, **message);
      }
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    // Mostly it ends just now. One that only closed the socket cannot be
    // reached any more, and would not learn of our end.
    process->socket_ended = true;
    absl::MutexLock lock(&mu_);
    process->kill_at =
        std::min(process->kill_at, absl::Now() + kClosedSocketGrace);
  }
}

void ProcessSupervisor::Reap(const std::shared_ptr<Process>& process) {
  ReadSocket(process);
  int status = 0;
  pid_t reaped;
  do {
    reaped = waitpid(process->pid, &status, WNOHANG);
  } while (reaped < 0 && errno == EINTR);
  if (reaped != process->pid) return;  // Not yet.
  // What it started itself goes with it.
  kill(-process->pid, SIGKILL);
  guardian_->Forget(process->pid);
  process->command.on_exit(DescribeExit(status));
  absl::MutexLock lock(&mu_);
  processes_.erase(process->command.key);
}

}  // namespace miniray
