#include "runtime/http/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/net.h"
#include "runtime/base/refusal_log.h"

namespace miniray {
namespace {

// For the next request of the same connection.
constexpr absl::Duration kIdleTime = absl::Seconds(2);
constexpr absl::Duration kLastAnswersTime = absl::Seconds(1);

// What this thread serves.
thread_local Connection* serving = nullptr;
// How many connections were accepted before that one.
thread_local uint64_t serving_number = 0;

}  // namespace

// cpp-httplib's pool, with a word to the server of who comes.
class HttpServer::Threads : public httplib::TaskQueue {
 public:
  explicit Threads(HttpServer* server)
      : server_(*server), pool_(server->max_connections_) {}

  // In the order in which they are accepted.
  void enqueue(std::function<void()> serve) override {
    {
      absl::MutexLock lock(&server_.mu_);
      ++server_.queued_;
      server_.MakeRoom();
    }
    pool_.enqueue([number = accepted_++, serve = std::move(serve)] {
      serving_number = number;
      serve();
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  HttpServer& server_;
  httplib::ThreadPool pool_;
  uint64_t accepted_ = 0;
};

HttpServer::HttpServer(TlsContext tls, absl::Duration patience,
                       size_t max_connections, std::string what)
    : tls_(std::move(tls)),
      patience_(patience),
      max_connections_(max_connections),
      what_(std::move(what)) {
  new_task_queue = [this] { return new Threads(this); };
  // Not httplib's default SO_REUSEPORT: with it two processes could share a
  // port without noticing.
  set_socket_options([](int socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  // The handlers log what they refuse; this is what no handler sees.
  set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (serving != nullptr && response.body.empty() &&
        (response.status == 400 || response.status == 413 ||
         response.status == 414)) {
      serving->Fail(absl::StrCat("its request is malformed or too long (",
                                 response.status, ")"));
    }
  });
}

absl::StatusOr<int> HttpServer::Listen(const std::string& host, int port) {
  errno = 0;
  const int bound = port == 0                  ? bind_to_any_port(host)
                    : bind_to_port(host, port) ? port
                                               : -1;
  if (bound <= 0) {
    return absl::UnavailableError(absl::StrCat(
        what_, " cannot listen on ", JoinHostPort(host, port), ": ",
        errno != 0 ? std::strerror(errno) : "not an address of this machine"));
  }
  // A crowd that comes at once need not dial again. cpp-httplib lets 5 wait.
  ::listen(svr_sock_, SOMAXCONN);
  thread_ = std::thread([this] {
    listen_after_bind();
    ended_ = true;
  });
  // A stop before the thread accepts would be lost.
  while (!is_running() && !ended_) absl::SleepFor(absl::Milliseconds(1));
  return bound;
}

void HttpServer::Shutdown() {
  if (!thread_.joinable()) return;
  EndConnections();
  stop();
  thread_.join();
}

void HttpServer::LogRefused(const httplib::Request& request,
                            absl::string_view why) {
  LogRefusal(JoinHostPort(request.remote_addr, request.remote_port),
             absl::StrCat(request.method, " ", request.path), why);
}

void HttpServer::BeginAnswer() {
  if (serving != nullptr) serving->BeginAnswer();
}

void HttpServer::HangUp() {
  if (serving != nullptr) serving->HangUp();
}

int HttpServer::SkipBody(const httplib::Request& request, size_t max_bytes) {
  if (serving == nullptr) return 0;
  const size_t lengths = request.get_header_value_count("Content-Length");
  uint64_t left = 0;
  if (request.has_header("Transfer-Encoding") || lengths > 1 ||
      (lengths == 1 &&
       !absl::SimpleAtoi(request.get_header_value("Content-Length"), &left))) {
    HangUp();
    return 411;
  }
  if (left > max_bytes) {
    HangUp();
    return 413;
  }
  char unread[512];
  while (left > 0) {
    const ssize_t got =
        serving->read(unread, std::min<uint64_t>(left, sizeof(unread)));
    if (got <= 0) {
      HangUp();
      return 408;
    }
    left -= static_cast<uint64_t>(got);
  }
  return 0;
}

void HttpServer::RenewAnswer() {
  if (serving != nullptr) serving->RenewAnswer();
}

bool HttpServer::ClientHasLeft() {
  return serving != nullptr && serving->HasLeft();
}

void HttpServer::EndConnections() {
  absl::MutexLock lock(&mu_);
  ending_ = true;
  for (const auto& [number, connection] : connections_) {
    connection->EndReading();
  }
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return connections_.empty();
  };
  mu_.AwaitWithTimeout(absl::Condition(&none), kLastAnswersTime);
  for (const auto& [number, connection] : connections_) connection->Cut();
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  Connection connection(ScopedFd(socket), tls_.get(), patience_);
  const uint64_t number = serving_number;
  {
    absl::MutexLock lock(&mu_);
    --queued_;
    if (ending_) return false;
    connections_.emplace(number, &connection);
    MakeRoom();
  }
  serving = &connection;
  Serve(&connection);
  serving = nullptr;
  bool ending;
  {
    absl::MutexLock lock(&mu_);
    connections_.erase(number);
    ending = ending_;
  }
  const bool refused = !connection.failure().empty() && !ending;
  if (refused) {
    LogRefusal(connection.peer(), absl::StrCat("a connection to ", what_),
               connection.failure());
  }
  return !refused;
}

void HttpServer::Serve(Connection* connection) {
  if (!connection->Handshake()) return;
  absl::Duration idle = patience_;
  for (size_t left = keep_alive_max_count_; left > 0; --left) {
    if (!connection->AwaitRequest(idle)) {
      // Between two requests one may go without a word.
      if (left == keep_alive_max_count_ &&
          (connection->timed_out() || connection->turned_away())) {
        connection->Fail(absl::StrCat("it sent no request within ",
                                      absl::FormatDuration(patience_)));
      }
      return;
    }
    bool closed = false;
    if (!process_request(*connection, /*close_connection=*/left == 1, closed,
                         [](httplib::Request&) {}) ||
        closed || !connection->open()) {
      return;
    }
    idle = kIdleTime;
  }
}

void HttpServer::MakeRoom() {
  const size_t wanted = queued_ + connections_.size();
  size_t leaving = 0;
  for (const auto& [number, connection] : connections_) {
    leaving += connection->turned_away() ? 1 : 0;
  }
  for (const auto& [number, connection] : connections_) {
    if (wanted <= max_connections_ + leaving) return;
    if (!connection->waiting() || connection->turned_away()) continue;
    connection->TurnAway();
    ++leaving;
  }
}

}  // namespace miniray
