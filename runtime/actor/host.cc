#include "runtime/actor/host.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/framed_socket.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace internal {
namespace {

// See ProcessSupervisor.
constexpr char kActorFdVariable[] = "MINIRAY_ACTOR_FD";

// Whatever ends us ends what we started as well.
[[noreturn]] void KillProcessGroup() {
  if (getpgrp() == getpid()) kill(0, SIGKILL);
  _exit(1);
}

void Report(int fd, const v1::ActorEvent& event) {
  if (!WriteFrame(fd, event.SerializeAsString()).ok()) KillProcessGroup();
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
  return absl::UnknownError(absl::StrCat("threw: ", text));
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
  FLAGS_logtostderr = true;
  // What a method prints is in the log at once, and stays there if it dies.
  setvbuf(stdout, nullptr, _IOLBF, 0);
  absl::StatusOr<std::string> bytes = ReadFrame(fd);
  v1::ActorControl control;
  if (!bytes.ok() || !control.ParseFromString(*bytes) || !control.has_host()) {
    KillProcessGroup();
  }
  // For ps and top, where the executable's name would be a hash.
  prctl(PR_SET_NAME,
        std::string(ShortClassName(control.host().spec().class_name())).c_str(),
        0, 0, 0);
  // The daemon sends nothing more: the end of the socket is the end of the
  // daemon.
  std::thread([fd] {
    pollfd wait = {fd, POLLIN | POLLRDHUP, 0};
    while (poll(&wait, 1, -1) < 0) {
    }
    KillProcessGroup();
  }).detach();

  std::unique_ptr<ActorServer> server;
  absl::StatusOr<ActorHooks> hooks = [&]() -> absl::StatusOr<ActorHooks> {
    MR_RETURN_IF_ERROR(UseTls(control.host().tls_dir()));
    MR_ASSIGN_OR_RETURN(
        server, ActorServer::Start({.host = control.host().listen_host(),
                                    .token = control.host().token()}));
    return prepare(control.host());
  }();
  if (!hooks.ok()) {
    v1::ActorEvent event;
    *event.mutable_construction_failed() = ToProto(hooks.status());
    Report(fd, event);
    _exit(1);
  }
  server->AddActor(control.host(), *std::move(hooks),
                   [fd](const v1::ActorEvent& event) {
                     Report(fd, event);
                     if (event.has_construction_failed()) _exit(1);
                     if (event.has_ending()) {
                       _exit(event.ending().has_status() ? 1 : 0);
                     }
                   });
  while (true) pause();
}

}  // namespace internal
}  // namespace miniray
