#include "runtime/rpc/grpc_listener.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/net.h"
#include "runtime/base/tcp_bind.h"
#include "runtime/link/tcp_socket.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace {

// Until connections are tried again that could not be accepted; internal.
constexpr int kRetryMs = 100;
// Between two lines in the log about that.
constexpr int kLineSeconds = 60;

// What is short when a connection cannot be accepted; other errors are the
// connection's own.
bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

absl::Status CannotListen(const std::string& host, int port, int error) {
  const std::string what =
      absl::StrCat("cannot listen on ", JoinHostPort(host, port));
  switch (error) {
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": ", host, " is not an IP address of this machine"));
    case EADDRINUSE:
      return absl::UnavailableError(absl::StrCat(what, ": the port is in use"));
    case EACCES:
      return absl::PermissionDeniedError(
          absl::StrCat(what, ": this user may not listen on that port"));
    default:
      return ErrnoStatus(error, what);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Start(
    const std::string& host, int port) {
  BoundSocket bound;
  // IPv4 comes through it as well.
  if (host == "0.0.0.0") bound = BindTcp("::", port);
  if (!bound.fd.valid()) bound = BindTcp(host, port);
  if (!bound.fd.valid()) return CannotListen(host, port, bound.error);
  ScopedFd wakeup(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // Connections inherit it: those that end with a killed process are not in the
  // way of the one that listens there next.
  const int reuse = 1;
  if (!wakeup.valid() ||
      setsockopt(bound.fd.get(), SOL_SOCKET, SO_REUSEADDR, &reuse,
                 sizeof(reuse)) != 0 ||
      fcntl(bound.fd.get(), F_SETFL, O_RDWR | O_NONBLOCK) != 0 ||
      listen(bound.fd.get(), SOMAXCONN) != 0) {
    return CannotListen(host, port, errno);
  }
  return absl::WrapUnique(
      new GrpcListener(std::move(bound.fd), std::move(wakeup), bound.port));
}

GrpcListener::GrpcListener(ScopedFd fd, ScopedFd wakeup, int port)
    : fd_(std::move(fd)), wakeup_(std::move(wakeup)), port_(port) {}

GrpcListener::~GrpcListener() {
  if (!thread_.joinable()) return;
  eventfd_write(wakeup_.get(), 1);
  thread_.join();
}

void GrpcListener::AddTo(grpc::ServerBuilder* builder) {
  using Builder = grpc::ServerBuilder::experimental_type;
  acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD, ServerCredentials());
}

void GrpcListener::Accept() {
  thread_ = std::thread([this] { Run(); });
}

void GrpcListener::Run() {
  pthread_setname_np(pthread_self(), "miniray-accept");
  pollfd fds[] = {{wakeup_.get(), POLLIN, 0}, {fd_.get(), POLLIN, 0}};
  bool shortage = false;
  while (true) {
    const int ready = shortage ? poll(fds, 1, kRetryMs) : poll(fds, 2, -1);
    if (ready > 0 && fds[0].revents != 0) return;
    ScopedFd fd(
        accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = fd.valid() ? 0 : errno;
    shortage = IsShortage(error);
    if (shortage) {
      LOG_EVERY_T(ERROR, kLineSeconds)
          << ErrnoStatus(error, absl::StrCat("new connections to port ", port_,
                                             " have to wait"))
                 .message();
    }
    if (!fd.valid()) continue;
    internal::PrepareAccepted(fd.get());
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
        connection;
    connection.listener_fd = fd_.get();
    connection.fd = fd.release();
    acceptor_->HandleNewConnection(&connection);
  }
}

}  // namespace miniray
