#include "runtime/worker/process_supervisor.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "runtime/worker/process_scan.h"

extern char** environ;

namespace miniray {
namespace {

// Between the end of a process's socket and that of the process; it is ending
// by itself. Internal, as is how often what was inherited is looked for.
constexpr absl::Duration kClosedSocketGrace = absl::Seconds(5);
constexpr absl::Duration kTendPeriod = absl::Seconds(1);
// To a process that does not read.
constexpr size_t kMaxOutgoingBytes = 256 << 20;
constexpr size_t kPaddedMark = 200;
// A process that starts others faster than they are killed gets away.
constexpr int kMaxSweeps = 20;

// What the child needs, prepared before fork: afterwards only system calls are
// allowed, since other threads may have held any lock.
struct ChildPlan {
  const char* executable;
  const char* working_dir;  // Null: stay.
  char* const* argv;
  char* const* envp;
  int socket;  // -1: none.
  int output;
  int null;
  int error_pipe;
};

constexpr int kBusyTries = 400;
constexpr long kBusyPauseNs = 5'000'000;

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
  if (dup2(plan.null, 0) < 0 || dup2(plan.output, 1) < 0 ||
      dup2(plan.output, 2) < 0 ||
      (plan.socket >= 0 && fcntl(plan.socket, F_SETFD, 0) < 0) ||
      (plan.working_dir != nullptr && chdir(plan.working_dir) != 0)) {
    fail();
  }
  // A program that was written here a moment ago is busy as long as a process
  // that was forked meanwhile has not got to its own exec.
  for (int i = 0; i < kBusyTries; ++i) {
    execve(plan.executable, plan.argv, plan.envp);
    if (errno != ETXTBSY) break;
    timespec pause = {.tv_sec = 0, .tv_nsec = kBusyPauseNs};
    nanosleep(&pause, nullptr);
    errno = ETXTBSY;
  }
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

ProcessSupervisor::ProcessSupervisor(Options options)
    : options_(options), mark_(NewId("daemon") + "/") {}

absl::StatusOr<std::unique_ptr<ProcessSupervisor>> ProcessSupervisor::Create(
    Options options) {
  auto supervisor = absl::WrapUnique(new ProcessSupervisor(options));
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
    return ErrnoStatus(errno, "become a subreaper");
  }
  {
    absl::MutexLock lock(&supervisor->mu_);
    MR_ASSIGN_OR_RETURN(supervisor->guardian_,
                        Guardian::Start(supervisor->MarkEntry()));
  }
  supervisor->wake_ = ScopedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!supervisor->wake_.valid()) return ErrnoStatus(errno, "eventfd");
  supervisor->thread_ = std::thread([s = supervisor.get()] { s->Loop(); });
  return supervisor;
}

ProcessSupervisor::~ProcessSupervisor() {
  if (!thread_.joinable()) return;
  StopAll(absl::ZeroDuration());
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  Wake();
  thread_.join();
}

void ProcessSupervisor::Wake() {
  const uint64_t one = 1;
  // The counter cannot overflow in practice; a full one wakes all the same.
  if (write(wake_.get(), &one, sizeof(one)) < 0 && errno != EAGAIN) {
    PLOG(ERROR) << "eventfd";
  }
}

std::string ProcessSupervisor::MarkOf(const std::string& key) const {
  return mark_ + key;
}

std::string ProcessSupervisor::MarkEntry() const {
  return absl::StrCat(kMarkVariable, "=", mark_);
}

absl::Status ProcessSupervisor::Start(const Command& command) {
  auto process = std::make_shared<Process>();
  process->command = command;
  process->command.first_message.clear();
  ScopedFd theirs;
  if (!command.socket_variable.empty()) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
      return ErrnoStatus(errno, "socketpair");
    }
    process->socket = ScopedFd(sockets[0]);
    theirs = ScopedFd(sockets[1]);
    if (!command.first_message.empty()) {
      absl::MutexLock lock(&mu_);
      MR_RETURN_IF_ERROR(Queue(process.get(), command.first_message, {}));
    }
  }
  const int output =
      command.output == nullptr ? -1 : command.output->write_fd();
  if (command.spawn != nullptr) {
    {
      absl::MutexLock lock(&mu_);
      ++adopting_;
    }
    const absl::StatusOr<pid_t> pid = command.spawn(theirs.get(), output);
    absl::MutexLock lock(&mu_);
    --adopting_;
    MR_RETURN_IF_ERROR(pid.status());
    if (closed_) {
      kill(-*pid, SIGKILL);
      waitpid(*pid, nullptr, 0);
      return absl::UnavailableError("the daemon is stopping");
    }
    MR_RETURN_IF_ERROR(Adopt(process, *pid));
  } else {
    MR_RETURN_IF_ERROR(Run(process, command, std::move(theirs)));
  }
  if (command.output != nullptr) command.output->ReleaseWriteEnd();
  Wake();
  return absl::OkStatus();
}

absl::Status ProcessSupervisor::Run(const std::shared_ptr<Process>& process,
                                    const Command& command, ScopedFd theirs) {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  ScopedFd error_read(pipes[0]), error_write(pipes[1]);
  ScopedFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  std::map<std::string, std::string> extra = command.env;
  if (theirs.valid()) {
    extra[command.socket_variable] = absl::StrCat(theirs.get());
  }
  std::string& mark = extra[kMarkVariable];
  mark = MarkOf(command.key);
  if (command.pad_mark) mark.resize(std::max(mark.size(), kPaddedMark), '.');
  std::vector<std::string> entries = Environment(extra);
  std::vector<std::string> args = command.args;
  const std::vector<char*> argv = Pointers(&args), envp = Pointers(&entries);
  const ChildPlan plan = {
      command.executable.c_str(),
      command.working_dir.empty() ? nullptr : command.working_dir.c_str(),
      argv.data(),
      envp.data(),
      theirs.get(),
      command.output == nullptr ? null.get() : command.output->write_fd(),
      null.get(),
      error_write.get()};
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
  MR_RETURN_IF_ERROR(Adopt(process, pid));
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
    processes_.erase(command.key);
    return ErrnoStatus(
        error,
        absl::StrCat("run ", command.executable,
                     command.working_dir.empty()
                         ? ""
                         : absl::StrCat(" in ", command.working_dir),
                     error == EACCES ? " (is its folder mounted noexec? set "
                                       "MINIRAY_RUNTIME_DIR)"
                                     : ""));
  }
  return absl::OkStatus();
}

absl::Status ProcessSupervisor::Adopt(const std::shared_ptr<Process>& process,
                                      pid_t pid) {
  guardian_->Watch(pid);
  process->pid = pid;
  process->pidfd = ScopedFd(OpenPidfd(pid));
  if (!process->pidfd.valid()) {
    const absl::Status status = ErrnoStatus(errno, "pidfd_open");
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    guardian_->Forget(pid);
    return status;
  }
  // Before it prints anything: the output says whose it is.
  if (process->command.output != nullptr) process->command.output->set_pid(pid);
  processes_[process->command.key] = process;
  return absl::OkStatus();
}

absl::Status ProcessSupervisor::Queue(Process* process,
                                      absl::string_view message,
                                      std::vector<ScopedFd> fds) {
  if (process->outgoing_bytes > kMaxOutgoingBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the process ", process->command.key, " does not read"));
  }
  Outgoing& outgoing = process->outgoing.emplace_back();
  MR_ASSIGN_OR_RETURN(outgoing.bytes, MakeFrame(message));
  outgoing.fds = std::move(fds);
  process->outgoing_bytes += outgoing.bytes.size();
  return absl::OkStatus();
}

absl::Status ProcessSupervisor::Send(const std::string& key,
                                     absl::string_view message,
                                     std::vector<ScopedFd> fds) {
  {
    absl::MutexLock lock(&mu_);
    const auto it = processes_.find(key);
    if (it == processes_.end() || it->second->reaped) {
      return absl::NotFoundError(absl::StrCat("no process ", key));
    }
    MR_RETURN_IF_ERROR(Queue(it->second.get(), message, std::move(fds)));
  }
  Wake();
  return absl::OkStatus();
}

pid_t ProcessSupervisor::PidOf(const std::string& key) {
  absl::MutexLock lock(&mu_);
  const auto it = processes_.find(key);
  return it == processes_.end() || it->second->reaped ? 0 : it->second->pid;
}

void ProcessSupervisor::Stop(const std::string& key, absl::Duration grace) {
  absl::MutexLock lock(&mu_);
  auto it = processes_.find(key);
  if (it == processes_.end() || it->second->reaped) return;
  kill(-it->second->pid, SIGTERM);
  it->second->kill_at = std::min(it->second->kill_at, absl::Now() + grace);
  Wake();
}

void ProcessSupervisor::StopAll(absl::Duration grace) {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
    for (auto& [key, process] : processes_) {
      if (process->reaped) continue;
      kill(-process->pid, SIGTERM);
      process->kill_at = std::min(process->kill_at, absl::Now() + grace);
    }
    Wake();
    auto none_left = [this] {
      mu_.AssertHeld();
      return processes_.empty() && adopting_ == 0;
    };
    mu_.Await(absl::Condition(&none_left));
  }
  for (int i = 0; i < kMaxSweeps; ++i) {
    const std::vector<pid_t> left = MarkedProcesses(mark_, false);
    if (left.empty()) break;
    for (const pid_t pid : left) kill(pid, SIGKILL);
    absl::SleepFor(absl::Milliseconds(i));
  }
  TendOrphans();
}

void ProcessSupervisor::Loop() {
  absl::Time tend_at = absl::Now() + kTendPeriod;
  while (true) {
    std::vector<std::shared_ptr<Process>> watched;
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
    absl::Time wake_at = tend_at;
    {
      absl::MutexLock lock(&mu_);
      if (ending_ && processes_.empty()) return;
      fds.push_back({guardian_->pidfd(), POLLIN, 0});
      for (auto& [key, process] : processes_) {
        if (process->reaped) continue;
        watched.push_back(process);
        fds.push_back({process->pidfd.get(), POLLIN, 0});
        const bool open = process->socket.valid() && !process->socket_ended;
        const bool write = !process->outgoing.empty();
        fds.push_back({open ? process->socket.get() : -1,
                       static_cast<short>(POLLIN | (write ? POLLOUT : 0)), 0});
        wake_at = std::min(wake_at, process->kill_at);
      }
    }
    const int wait_ms = static_cast<int>(std::max<int64_t>(
        0, absl::ToInt64Milliseconds(wake_at - absl::Now()) + 1));
    if (poll(fds.data(), fds.size(), wait_ms) < 0 && errno != EINTR) {
      PLOG(FATAL) << "poll";
    }
    if (fds[0].revents != 0) {
      uint64_t count;
      if (read(wake_.get(), &count, sizeof(count)) < 0 && errno != EAGAIN) {
        PLOG(ERROR) << "eventfd";
      }
    }
    if (fds[1].revents != 0) ReplaceGuardian();
    for (size_t i = 0; i < watched.size(); ++i) {
      const int pid_events = fds[2 + 2 * i].revents;
      const int socket_events = fds[3 + 2 * i].revents;
      if (socket_events & POLLOUT) WriteSocket(watched[i]);
      // What the process said last is read before its end is reported.
      if (socket_events & ~POLLOUT) ReadSocket(watched[i]);
      if (pid_events != 0) {
        Reap(watched[i]);
        continue;
      }
      absl::MutexLock lock(&mu_);
      if (absl::Now() >= watched[i]->kill_at) {
        kill(-watched[i]->pid, SIGKILL);
        watched[i]->kill_at = absl::Now() + absl::Seconds(1);
      }
    }
    if (absl::Now() >= tend_at) {
      TendOrphans();
      tend_at = absl::Now() + kTendPeriod;
    }
  }
}

void ProcessSupervisor::WriteSocket(const std::shared_ptr<Process>& process) {
  absl::MutexLock lock(&mu_);
  while (!process->outgoing.empty()) {
    Outgoing& next = process->outgoing.front();
    const ssize_t n = SendWithFds(
        process->socket.get(), absl::string_view(next.bytes).substr(next.sent),
        next.fds, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) {  // It died, or closed the socket.
      process->outgoing.clear();
      process->outgoing_bytes = 0;
      return;
    }
    next.fds.clear();  // They went with the first byte.
    next.sent += static_cast<size_t>(n);
    process->outgoing_bytes -= static_cast<size_t>(n);
    if (next.sent == next.bytes.size()) process->outgoing.pop_front();
  }
}

void ProcessSupervisor::ReadSocket(const std::shared_ptr<Process>& process) {
  char buffer[65536];
  while (process->socket.valid() && !process->socket_ended) {
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
  if (reaped != process->pid) {
    // ECHILD: whoever forked it has not ended yet, and it is not ours yet. Or
    // somebody else in this process has reaped it.
    if (reaped == 0 || kill(process->pid, 0) == 0) return;
    status = 255 << 8;
  }
  // What it started itself goes with it.
  kill(-process->pid, SIGKILL);
  {
    absl::MutexLock lock(&mu_);
    process->reaped = true;
    guardian_->Forget(process->pid);
  }
  KillEscaped(process->command.key);
  auto done = [this, process, status] {
    process->command.on_exit(status);
    absl::MutexLock lock(&mu_);
    processes_.erase(process->command.key);
  };
  if (process->command.output == nullptr) return done();
  process->command.output->Finish(done);
}

std::vector<pid_t> ProcessSupervisor::UnknownChildren() {
  std::set<pid_t> known = {guardian_->pid()};
  for (const auto& [key, process] : processes_) {
    if (!process->reaped) known.insert(process->pid);
  }
  std::vector<pid_t> children = OwnChildren();
  std::erase_if(children, [&](pid_t child) { return known.contains(child); });
  return children;
}

void ProcessSupervisor::KillEscaped(const std::string& key) {
  {
    // Its end has made orphans of what it left, and they became ours.
    absl::MutexLock lock(&mu_);
    if (UnknownChildren().empty()) return;
  }
  for (int i = 0; i < kMaxSweeps; ++i) {
    const std::vector<pid_t> left = MarkedProcesses(MarkOf(key), true);
    if (left.empty()) return;
    for (const pid_t pid : left) kill(pid, SIGKILL);
  }
}

void ProcessSupervisor::TendOrphans() {
  absl::MutexLock lock(&mu_);
  if (adopting_ > 0) return;
  for (const pid_t child : UnknownChildren()) {
    if (options_.reap_orphans) waitpid(child, nullptr, WNOHANG);
    // It may have started another process while it was killed.
    const std::string mark = MarkOfProcess(child);
    if (absl::StartsWith(mark, mark_) &&
        !processes_.contains(mark.substr(mark_.size()))) {
      kill(child, SIGKILL);
    }
  }
}

void ProcessSupervisor::ReplaceGuardian() {
  LOG(ERROR) << "the guardian process has died; a new one takes its place";
  absl::MutexLock lock(&mu_);
  absl::StatusOr<std::unique_ptr<Guardian>> guardian =
      Guardian::Start(MarkEntry());
  if (!guardian.ok()) {
    LOG(ERROR) << guardian.status();
    absl::SleepFor(absl::Milliseconds(100));
    return;
  }
  guardian_ = *std::move(guardian);
  for (const auto& [key, process] : processes_) {
    if (!process->reaped) guardian_->Watch(process->pid);
  }
}

}  // namespace miniray
