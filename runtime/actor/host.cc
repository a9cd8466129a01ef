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

absl::StatusOr<std::shared_ptr<void>> Construct(const ActorClass* actor_class,
                                                const v1::ActorSpec& spec) {
  ArgumentList args;
  for (const v1::Value& value : spec.constructor_args()) {
    args.emplace_back(value.SerializeAsString());
  }
  try {
    return actor_class->construct(args);
  } catch (const std::exception& error) {
    return FromException(error);
  } catch (...) {
    return absl::UnknownError("threw something that is no std::exception");
  }
}

absl::StatusOr<std::unique_ptr<ActorServer>> StartHosting(
    const v1::HostActor& host,
    const std::function<absl::Status(const v1::HostActor&)>& prepare) {
  const v1::ActorSpec& spec = host.spec();
  MR_ASSIGN_OR_RETURN(const ActorClass* actor_class,
                      ActorRegistry::Get().Find(spec.class_name()));
  MR_RETURN_IF_ERROR(UseTls(host.tls_dir()));
  MR_RETURN_IF_ERROR(prepare(host));
  MR_ASSIGN_OR_RETURN(std::shared_ptr<void> object,
                      Construct(actor_class, spec));
  ActorServer::Options options;
  options.host = host.listen_host();
  options.token = host.token();
  options.actor_id = spec.actor_id();
  options.display_name = spec.name().empty() ? spec.actor_id() : spec.name();
  return ActorServer::Start(std::move(options), actor_class, std::move(object));
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
    std::function<absl::Status(const v1::HostActor&)> prepare) {
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

  v1::ActorEvent event;
  absl::StatusOr<std::unique_ptr<ActorServer>> server =
      StartHosting(control.host(), prepare);
  if (!server.ok()) {
    *event.mutable_construction_failed() = ToProto(server.status());
    Report(fd, event);
    _exit(1);
  }
  event.mutable_ready()->set_address((*server)->address());
  Report(fd, event);
  (*server)->Run();
  KillProcessGroup();
}

}  // namespace internal
}  // namespace miniray
