#include "runtime/actor/host.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "runtime/actor/actor_malloc.h"
#include "runtime/actor/call_meter.h"
#include "runtime/actor/call_recorder.h"
#include "runtime/actor/idle_memory.h"
#include "runtime/actor/metric_reporter.h"
#include "runtime/actor/plugins.h"
#include "runtime/actor/registry.h"
#include "runtime/base/framed_socket.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace internal {
namespace {

// See ProcessSupervisor.
constexpr char kActorFdVariable[] = "MINIRAY_ACTOR_FD";

constexpr size_t kMaxExceptionBytes = 64 << 10;

// Whatever ends us ends what we started as well.
[[noreturn]] void KillProcessGroup() {
  if (getpgrp() == getpid()) kill(0, SIGKILL);
  _exit(1);
}

// For ps and top, where the executable's name would be a hash.
void SetName(const v1::ActorSpec& spec) {
  const std::string name = spec.shared_process().empty()
                               ? std::string(ShortClassName(spec.class_name()))
                               : spec.shared_process();
  prctl(PR_SET_NAME, name.c_str(), 0, 0, 0);
}

// The daemon's socket, written by the actors' threads. Thread-safe.
class Reporter {
 public:
  explicit Reporter(int fd) : fd_(fd) {}
  void Report(const v1::ActorEvent& event) {
    absl::MutexLock lock(&mu_);
    if (!WriteFrame(fd_, event.SerializeAsString()).ok()) KillProcessGroup();
  }
  // Returns whether it was sent: not, if the daemon does not read.
  bool ReportIfItReads(const v1::ActorEvent& event) {
    if (!mu_.TryLock()) return false;
    pollfd poll_fd{.fd = fd_, .events = POLLOUT, .revents = 0};
    // A socket counts as writable while most of its buffer is free: one event
    // fits.
    const bool reads =
        poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLOUT) != 0;
    if (reads && !WriteFrame(fd_, event.SerializeAsString()).ok()) {
      KillProcessGroup();
    }
    mu_.Unlock();
    return reads;
  }

 private:
  const int fd_;
  absl::Mutex mu_;
};

// The actors of this process. `prepare` is HostActorAndExit's.
class Host {
 public:
  Host(int fd,
       std::function<absl::StatusOr<ActorHooks>(const v1::HostActor&)> prepare)
      : reporter_(fd),
        prepare_(std::move(prepare)),
        recorder_(std::make_shared<CallRecorder>(
            [this](const v1::ActorEvent& event, bool wait) {
              return Send(event, wait);
            })),
        metrics_(std::make_shared<MetricReporter>(
            &ProcessMetrics::Get(), [this] { return UpdateMetrics(); },
            [this](const v1::ActorEvent& event, bool wait) {
              return Send(event, wait);
            })),
        meters_(&ProcessMetrics::Get(), metrics_) {}

  // What is to be told before this process is gone.
  void Flush() {
    recorder_->Flush();
    metrics_->Flush();
    std::fflush(stdout);
  }

  void Obey(const v1::ActorControl& control) {
    if (control.has_host()) {
      Add(control.host());
    } else if (control.has_stop_actor() && server_ != nullptr) {
      const v1::StopHostedActor& stop = control.stop_actor();
      server_->RemoveActor(stop.actor_id(), stop.incarnation(), stop.reason());
    }
  }

 private:
  bool Send(const v1::ActorEvent& event, bool wait) {
    if (!wait) return reporter_.ReportIfItReads(event);
    reporter_.Report(event);
    return true;
  }

  // Returns whether any call waits or runs.
  bool UpdateMetrics() {
    const ActorServer* const server = serving_.load(std::memory_order_acquire);
    return server != nullptr && meters_.Update(server->Load());
  }

  void Add(const v1::HostActor& host) {
    absl::StatusOr<ActorHooks> hooks = Prepare(host);
    // A process of its own goes with the actor.
    const bool shared = !host.spec().shared_process().empty();
    if (!hooks.ok()) {
      v1::ActorEvent event;
      event.set_actor_id(host.spec().actor_id());
      event.set_incarnation(host.incarnation());
      *event.mutable_construction_failed() = ToProto(hooks.status());
      reporter_.Report(event);
      if (!shared) _exit(1);
      return;
    }
    hooks->on_call = recorder_->HookFor(host);
    hooks->meter = meters_.Of(ShortClassName(host.spec().class_name()));
    server_->AddActor(host, *std::move(hooks),
                      [this, shared](const v1::ActorEvent& event) {
                        if (event.has_ending()) Flush();
                        reporter_.Report(event);
                        if (shared) return;
                        if (event.has_construction_failed()) _exit(1);
                        if (event.has_ending()) {
                          _exit(event.ending().has_status() ? 1 : 0);
                        }
                      });
  }

  absl::StatusOr<ActorHooks> Prepare(const v1::HostActor& host) {
    if (server_ == nullptr) {
      MR_RETURN_IF_ERROR(LoadListedPlugins());
      // For the actors that this process's actors create.
      for (const v1::Plugin& plugin : host.spec().plugins()) {
        ProgramPlugins().push_back(
            {.name = plugin.name(), .package_id = plugin.package_id()});
      }
      MR_RETURN_IF_ERROR(UseTls(host.tls_dir()));
      MR_ASSIGN_OR_RETURN(
          server_, ActorServer::Start(
                       {.host = host.listen_host(), .token = host.token()}));
      serving_.store(server_.get(), std::memory_order_release);
    }
    return prepare_(host);
  }

  Reporter reporter_;
  const std::function<absl::StatusOr<ActorHooks>(const v1::HostActor&)>
      prepare_;
  const std::shared_ptr<CallRecorder> recorder_;
  const std::shared_ptr<MetricReporter> metrics_;
  CallMeters meters_;
  std::unique_ptr<ActorServer> server_;
  // The same, for other threads than the one that obeys.
  std::atomic<const ActorServer*> serving_ = nullptr;
};

int terminate_pipe[2] = {-1, -1};

void OnTerminate(int) {
  const int error = errno;
  if (write(terminate_pipe[1], "", 1) < 0) _exit(1);
  errno = error;
}

// SIGTERM ends the process as ever, but not before it has said its last. A
// handler, not a blocked signal: what a method starts would inherit that.
void FlushOnTerminate(Host* host) {
  if (pipe2(terminate_pipe, O_CLOEXEC) != 0) return;
  std::thread([host] {
    char byte;
    while (read(terminate_pipe[0], &byte, 1) < 0 && errno == EINTR) {
    }
    // Blocks at worst until the daemon's grace is over.
    host->Flush();
    signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);
  }).detach();
  struct sigaction action = {};
  action.sa_handler = &OnTerminate;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

absl::Status FromException(const std::exception& error) {
  constexpr absl::string_view kBacktrace = "\nException raised from ";
  absl::string_view text = error.what();
  if (const size_t end = text.find(kBacktrace);
      end != absl::string_view::npos) {
    LOG(ERROR) << "a method threw: " << text;
    text = text.substr(0, end);
  }
  return absl::UnknownError(
      absl::StrCat("threw: ", Shorten(text, kMaxExceptionBytes)));
}

bool IsActorProcess() { return std::getenv(kActorFdVariable) != nullptr; }

void HostActorAndExit(
    std::function<absl::StatusOr<ActorHooks>(const v1::HostActor&)> prepare) {
  int fd = -1;
  if (!absl::SimpleAtoi(std::getenv(kActorFdVariable), &fd) || fd < 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    fprintf(stderr,
            "%s is set, but names no open file; it is for processes "
            "that a worker daemon starts\n",
            kActorFdVariable);
    _exit(2);
  }
  unsetenv(kActorFdVariable);
  // Has been read; what a method starts has nobody who gives memory back.
  const char* const malloc_settings = std::getenv(kMallocVariable);
  if (malloc_settings != nullptr &&
      absl::string_view(malloc_settings) == kActorMallocSettings) {
    unsetenv(kMallocVariable);
  }
  FLAGS_logtostderr = true;
  // What a method prints is in the log at once, and stays there if it dies.
  setvbuf(stdout, nullptr, _IOLBF, 0);
  static Host* const host = new Host(fd, std::move(prepare));
  FlushOnTerminate(host);
  IdleMemory::Watch();
  bool named = false;
  while (true) {
    const absl::StatusOr<std::string> bytes = ReadFrame(fd);
    v1::ActorControl control;
    // The end of the socket is the end of the daemon.
    if (!bytes.ok() || !control.ParseFromString(*bytes)) KillProcessGroup();
    if (!std::exchange(named, true)) SetName(control.host().spec());
    host->Obey(control);
  }
}

}  // namespace internal
}  // namespace miniray
