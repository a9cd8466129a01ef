#include "runtime/actor/template.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/worker.pb.h"
#include "runtime/actor/compute_threads.h"
#include "runtime/actor/plugins.h"
#include "runtime/base/files.h"
#include "runtime/base/framed_socket.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace internal {
namespace {

// See ProcessSupervisor.
constexpr char kTemplateFdVariable[] = "MINIRAY_TEMPLATE_FD";
constexpr char kActorFdVariable[] = "MINIRAY_ACTOR_FD";
constexpr char kMarkVariable[] = "MINIRAY_PROCESS";
constexpr char kThreadsVariable[] = "OMP_NUM_THREADS";

constexpr size_t kHeader = 4;  // See framed_socket.h.
constexpr size_t kMaxMessageBytes = 1 << 20;

int CountThreads() {
  int count = 0;
  DIR* const dir = opendir("/proc/self/task");
  if (dir == nullptr) return 0;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(dir);
  return count;
}

// Reads one message and what came beside it. Errors: OUT_OF_RANGE, the daemon
// is gone.
absl::StatusOr<v1::ForkActor> Receive(int fd, std::vector<ScopedFd>* fds) {
  std::string bytes;
  size_t wanted = kHeader;
  while (bytes.size() < wanted) {
    char buffer[4096];
    const size_t size = std::min(sizeof(buffer), wanted - bytes.size());
    const ssize_t n = ReceiveWithFds(fd, buffer, size, fds);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::OutOfRangeError("the daemon is gone");
    bytes.append(buffer, static_cast<size_t>(n));
    if (bytes.size() != kHeader || wanted != kHeader) continue;
    size_t length = 0;
    for (size_t i = kHeader; i-- > 0;) {
      length = length << 8 | static_cast<unsigned char>(bytes[i]);
    }
    if (length > kMaxMessageBytes) {
      return absl::DataLossError("the daemon sent a malformed message");
    }
    wanted += length;
  }
  v1::ForkActor request;
  if (!request.ParseFromString(bytes.substr(kHeader))) {
    return absl::DataLossError("the daemon sent a malformed message");
  }
  return request;
}

// Writes the mark over the template's own, in the memory that the kernel shows
// as this process's environment: what it starts by a mere fork shows it too.
void SetMark(const std::string& mark) {
  char* const place = std::getenv(kMarkVariable);
  const size_t room = place == nullptr ? 0 : strlen(place);
  if (mark.size() > room) {
    setenv(kMarkVariable, mark.c_str(), 1);
    return;
  }
  memset(place, 0, room);
  memcpy(place, mark.data(), mark.size());
}

// What makes the forked process an actor process. Returns why it cannot be one.
absl::Status BecomeActor(const v1::ForkActor& request,
                         std::vector<ScopedFd> fds) {
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal : {SIGINT, SIGTERM, SIGPIPE, SIGHUP, SIGCHLD}) {
    ::signal(signal, SIG_DFL);
  }
  if (dup2(fds[1].get(), 1) < 0 || dup2(fds[1].get(), 2) < 0) {
    return ErrnoStatus(errno, "dup2");
  }
  for (const auto& [name, value] : request.env()) {
    if (name == kMarkVariable) {
      SetMark(value);
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  unsetenv(kTemplateFdVariable);
  setenv(kActorFdVariable, absl::StrCat(fds[0].release()).c_str(), 1);
  int threads = 0;
  const auto it = request.env().find(kThreadsVariable);
  if (it != request.env().end() && absl::SimpleAtoi(it->second, &threads)) {
    SetComputeThreads(threads);
  }
  return absl::OkStatus();
}

// Forks an actor whose parent, ended, leaves it to the daemon. That parent is a
// process in between, by vfork: copying a process that has LibTorch loaded
// takes milliseconds, and so the actor alone is a copy. From vfork to _exit it
// runs on the template's memory and stack while the template stands still, and
// without signals, whose handlers would take it for the template. POSIX allows
// it next to nothing there; Linux and glibc allow a process of one thread to
// fork.
//
// Returns 0 in the actor, the actor's pid in the template.
absl::StatusOr<pid_t> ForkOrphan() {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  ScopedFd read_end(pipes[0]), write_end(pipes[1]);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // The actor sets its own.
  const pid_t between = vfork();  // NOLINT(clang-analyzer-*): see above.
  if (between == 0) {
    pid_t actor = fork();
    if (actor == 0) return 0;  // On its own copy of the stack.
    if (actor < 0) {
      actor = -errno;
    } else {
      setpgid(actor, actor);  // Before anybody hears of it.
    }
    if (write(write_end.get(), &actor, sizeof(actor)) < 0) _exit(1);
    _exit(0);
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (between < 0) return ErrnoStatus(error, "vfork");
  write_end.reset();
  pid_t actor = 0;
  ssize_t n;
  do {
    n = read(read_end.get(), &actor, sizeof(actor));
  } while (n < 0 && errno == EINTR);
  while (waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (n != sizeof(actor)) return absl::InternalError("the fork died");
  if (actor < 0) return ErrnoStatus(-actor, "fork");
  return actor;
}

v1::TemplateReady Prepare() {
  v1::TemplateReady ready;
  if (absl::Status status = LoadListedPlugins(); !status.ok()) {
    *ready.mutable_status() = ToProto(status);
    ready.set_fatal(true);
  } else if (const int threads = CountThreads(); threads != 1) {
    *ready.mutable_status() = ToProto(absl::FailedPreconditionError(
        absl::StrCat("the program has ", threads,
                     " threads before main: its actors start one by one")));
  }
  return ready;
}

}  // namespace

bool IsTemplateProcess() { return std::getenv(kTemplateFdVariable) != nullptr; }

void ServeAsTemplate() {
  int fd = -1;
  if (!absl::SimpleAtoi(std::getenv(kTemplateFdVariable), &fd) || fd < 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    fprintf(stderr,
            "%s is set, but names no open file; it is for processes that a "
            "worker daemon starts\n",
            kTemplateFdVariable);
    _exit(2);
  }
  // For ps and top, where the executable's name would be a hash.
  prctl(PR_SET_NAME, "miniray-tmpl", 0, 0, 0);
  const v1::TemplateReady ready = Prepare();
  // What is still buffered would be printed by every fork again.
  fflush(nullptr);
  if (!WriteFrame(fd, ready.SerializeAsString()).ok()) _exit(0);
  while (true) {
    std::vector<ScopedFd> fds;
    const absl::StatusOr<v1::ForkActor> request = Receive(fd, &fds);
    if (!request.ok()) _exit(0);
    v1::ForkedActor answer;
    answer.set_request_id(request->request_id());
    if (fds.size() != 2) {
      *answer.mutable_status() =
          ToProto(absl::InternalError("it takes two descriptors"));
    } else {
      const absl::StatusOr<pid_t> actor = ForkOrphan();
      if (actor.ok() && *actor == 0) {
        close(fd);
        if (!BecomeActor(*request, std::move(fds)).ok()) _exit(1);
        return;
      }
      if (actor.ok()) {
        answer.set_pid(*actor);
      } else {
        *answer.mutable_status() = ToProto(actor.status());
      }
    }
    if (!WriteFrame(fd, answer.SerializeAsString()).ok()) _exit(0);
  }
}

}  // namespace internal
}  // namespace miniray
