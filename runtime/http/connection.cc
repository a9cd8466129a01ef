#include "runtime/http/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/net.h"

namespace miniray {
namespace {

void SplitAddress(const sockaddr_storage& address, std::string* ip, int* port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    *port = ntohs(v4->sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    *port = ntohs(v6->sin6_port);
  }
  *ip = text;
}

std::string PeerOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size);
  std::string ip;
  int port = 0;
  SplitAddress(address, &ip, &port);
  return JoinHostPort(ip, port);
}

}  // namespace

Connection::Connection(ScopedFd fd, SSL_CTX* tls, absl::Duration patience)
    : fd_(std::move(fd)),
      peer_(PeerOf(fd_.get())),
      patience_(patience),
      deadline_(absl::Now() + patience) {
  fcntl(fd_.get(), F_SETFD, FD_CLOEXEC);
  fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
  // An answer leaves in two parts, an event in one: neither waits for the
  // other end's word of what came before.
  const int yes = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  if (tls == nullptr) return;
  ssl_.reset(SSL_new(tls));
  if (ssl_ != nullptr) SSL_set_fd(ssl_.get(), fd_.get());
}

Connection::~Connection() {
  // Says that nothing is missing; there is no wait for the other end.
  if (ssl_ != nullptr && failure_.empty()) SSL_shutdown(ssl_.get());
  ERR_clear_error();
  shutdown(fd_.get(), SHUT_RDWR);
}

bool Connection::Handshake() {
  if (ssl_ == nullptr) return true;
  while (true) {
    ERR_clear_error();
    const int result = SSL_accept(ssl_.get());
    if (result == 1) return true;
    if (WaitForTls(result)) continue;
    if (timed_out()) {
      Fail(absl::StrCat("its TLS handshake took more than ",
                        absl::FormatDuration(patience_)));
    } else if (turned_away_ || BIO_number_read(SSL_get_rbio(ssl_.get())) > 0) {
      // Not who only looked whether somebody listens.
      Fail(WhyNoHandshake());
    }
    return false;
  }
}

bool Connection::AwaitRequest(absl::Duration idle) {
  deadline_ = absl::Now() + idle;
  request_bytes_ = end_ - begin_;
  waiting_ = true;
  if (begin_ == end_ && Receive() <= 0) return false;
  deadline_ = absl::Now() + patience_;
  return true;
}

void Connection::BeginAnswer() {
  if (!waiting_.exchange(false)) return;
  deadline_ = absl::Now() + kAnswerTime;
}

bool Connection::HasLeft() const {
  pollfd socket = {fd_.get(), POLLRDHUP, 0};
  return poll(&socket, 1, 0) > 0;
}

void Connection::Fail(absl::string_view why) {
  if (!failure_.empty()) return;
  failure_ = turned_away_ ? "it was slow, and others waited" : std::string(why);
}

void Connection::EndReading() { shutdown(fd_.get(), SHUT_RD); }

void Connection::TurnAway() {
  turned_away_ = true;
  EndReading();
}

void Connection::Cut() { shutdown(fd_.get(), SHUT_RDWR); }

bool Connection::is_readable() const {
  return begin_ != end_ || (ssl_ != nullptr && SSL_pending(ssl_.get()) > 0) ||
         Wait(POLLIN);
}

bool Connection::is_writable() const { return Wait(POLLOUT); }

ssize_t Connection::read(char* to, size_t size) {
  if (begin_ == end_) {
    if (request_bytes_ >= kMaxRequestBytes) {
      Fail(absl::StrCat("its request has more than ", kMaxRequestBytes,
                        " bytes"));
      return -1;
    }
    const ssize_t got = Receive();
    if (got <= 0) {
      Fail(timed_out() ? absl::StrCat("its request took more than ",
                                      absl::FormatDuration(patience_))
                       : "it ended in the midst of a request");
      return got;
    }
  }
  const size_t n = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* from, size_t size) {
  BeginAnswer();
  while (true) {
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int n = SSL_write(ssl_.get(), from, static_cast<int>(size));
      if (n > 0) return n;
      if (!WaitForTls(n)) return -1;
      continue;
    }
    const ssize_t n = send(fd_.get(), from, size, MSG_NOSIGNAL);
    if (n >= 0) return n;
    if (errno == EINTR || (errno == EAGAIN && Wait(POLLOUT))) continue;
    return -1;
  }
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  SplitAddress(address, &ip, &port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  SplitAddress(address, &ip, &port);
}

bool Connection::Wait(short events) const {
  while (true) {
    const absl::Duration left = deadline_ - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    pollfd socket = {fd_.get(), events, 0};
    const int timeout_ms = static_cast<int>(
        absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
    const int ready = poll(&socket, 1, timeout_ms);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Connection::WaitForTls(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return Wait(POLLIN);
    case SSL_ERROR_WANT_WRITE:
      return Wait(POLLOUT);
    default:
      return false;
  }
}

ssize_t Connection::Receive() {
  ssize_t got = -1;
  while (true) {
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int n = SSL_read(ssl_.get(), buffer_.data(),
                             static_cast<int>(buffer_.size()));
      if (n <= 0 && WaitForTls(n)) continue;
      got = n;
    } else {
      got = recv(fd_.get(), buffer_.data(), buffer_.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN && Wait(POLLIN)) continue;
    }
    break;
  }
  if (got <= 0) return got;
  begin_ = 0;
  end_ = static_cast<size_t>(got);
  request_bytes_ += end_;
  return got;
}

std::string Connection::WhyNoHandshake() const {
  const unsigned long code = ERR_peek_last_error();
  switch (ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_BAD_PROTOCOL_VERSION_NUMBER:
      return "it does not speak TLS";
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return "its certificate is expired, or not signed by this cluster's "
             "authority";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "it shows no certificate, and this cluster has no token";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
      return "it does not trust this node's certificate";
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return "it ended in the midst of the TLS handshake";
  }
  const char* const reason = ERR_reason_error_string(code);
  return reason == nullptr ? "it ended in the midst of the TLS handshake"
                           : absl::StrCat("no TLS handshake: ", reason);
}

}  // namespace miniray
