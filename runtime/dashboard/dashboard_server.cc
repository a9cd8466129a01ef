#include "runtime/dashboard/dashboard_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "runtime/base/net.h"
#include "runtime/base/refusal_log.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/token.h"
#include "runtime/dashboard/access.h"
#include "runtime/dashboard/http_server.h"
#include "runtime/dashboard/page.h"
#include "runtime/dashboard/state_json.h"
#include "runtime/dashboard/tls_context.h"

namespace miniray {
namespace {

constexpr char kJson[] = "application/json";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kPrometheusText[] = "text/plain; version=0.0.4; charset=utf-8";

const httplib::Headers& SecurityHeaders() {
  static const auto* const headers = new httplib::Headers{
      {"Cache-Control", "no-store"},
      // The page's own script and style, and requests to this server alone.
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'unsafe-inline'; "
       "style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
  };
  return *headers;
}

void Refuse(httplib::Response& response, int code, absl::string_view why) {
  response.status = code;
  response.set_content(
      nlohmann::json{{"error", std::string(why)}}.dump() + "\n", kJson);
}

std::string Peer(const httplib::Request& request) {
  return JoinHostPort(request.remote_addr, request.remote_port);
}

// Without the parameters, which may hold a token.
std::string What(const httplib::Request& request) {
  return absl::StrCat(request.method, " ", request.path);
}

class DashboardServerImpl : public DashboardServer {
 public:
  DashboardServerImpl(Options options, TlsContext tls)
      : options_(std::move(options)),
        server_(std::move(tls), options_.patience) {
    Configure();
    AddRoutes();
  }

  ~DashboardServerImpl() override { Shutdown(); }

  absl::Status Listen() {
    port_ = options_.port;
    errno = 0;
    if (port_ == 0) {
      port_ = server_.bind_to_any_port(options_.host);
    } else if (!server_.bind_to_port(options_.host, port_)) {
      port_ = -1;
    }
    if (port_ <= 0) {
      return absl::UnavailableError(
          absl::StrCat("the dashboard cannot listen on ",
                       JoinHostPort(options_.host, options_.port), ": ",
                       errno != 0 ? std::strerror(errno)
                                  : "not an address of this machine"));
    }
    server_.QueueMany();
    thread_ = std::thread([this] {
      server_.listen_after_bind();
      ended_ = true;
    });
    // A stop before the thread accepts would be lost.
    while (!server_.is_running() && !ended_) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void Shutdown() override {
    if (!thread_.joinable()) return;
    server_.EndConnections();
    server_.stop();
    thread_.join();
  }

 private:
  using Handler = httplib::Server::Handler;

  void Configure() {
    // Not httplib's default SO_REUSEPORT: with it two heads could share a port
    // without noticing.
    server_.set_socket_options([](int socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server_.set_default_headers(SecurityHeaders());
    server_.set_pre_routing_handler([this](const httplib::Request& request,
                                           httplib::Response& response) {
      HttpServer::BeginAnswer();
      return CheckMethod(request, response) && CheckSource(request, response)
                 ? httplib::Server::HandlerResponse::Unhandled
                 : httplib::Server::HandlerResponse::Handled;
    });
  }

  // What the dashboard serves. Everything with data is under /api/, added with
  // AddApi.
  void AddRoutes() {
    server_.Get("/", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(kDashboardPage, kHtml);
    });
    AddApi("/api/v1/state",
           [this](const httplib::Request&, httplib::Response& response) {
             const absl::StatusOr<std::string> json =
                 ClusterStateToJson(options_.state(), JsonStyle::kCompact);
             if (!json.ok()) {
               return Refuse(response, 500, json.status().message());
             }
             response.set_content(*json, kJson);
           });
    if (options_.metrics) {
      AddApi("/metrics",
             [this](const httplib::Request&, httplib::Response& response) {
               response.set_content(options_.metrics(), kPrometheusText);
             });
    }
    if (options_.metric_targets) {
      AddApi("/api/v1/prometheus/targets", [this](
                                               const httplib::Request& request,
                                               httplib::Response& response) {
        response.set_content(
            options_.metric_targets(request.get_header_value("Host")), kJson);
      });
    }
  }

  void AddApi(const char* path, Handler handler) {
    server_.Get(path, [this, handler = std::move(handler)](
                          const httplib::Request& request,
                          httplib::Response& response) {
      if (CheckToken(request, response)) handler(request, response);
    });
  }

  // Whatever else a request brings is not even read.
  bool CheckMethod(const httplib::Request& request,
                   httplib::Response& response) const {
    if (request.method == "GET" || request.method == "HEAD") return true;
    HttpServer::HangUp();
    LogRefusal(Peer(request), What(request), "only GET is answered");
    response.set_header("Allow", "GET, HEAD");
    Refuse(response, 405, "the dashboard only shows: it answers GET alone");
    return false;
  }

  bool CheckSource(const httplib::Request& request,
                   httplib::Response& response) const {
    const std::string host = request.get_header_value("Host");
    if (!IsOwnHost(host, options_.host)) {
      LogRefusal(Peer(request), What(request),
                 absl::StrCat("its Host is '", host, "'"));
      Refuse(response, 403,
             "this Host is not the dashboard's; open it at 127.0.0.1 or "
             "localhost");
      return false;
    }
    const std::string origin = request.get_header_value("Origin");
    if (request.has_header("Origin") &&
        !IsOwnOrigin(origin, host, !options_.tls_dir.empty())) {
      LogRefusal(Peer(request), What(request),
                 absl::StrCat("its Origin is '", origin, "'"));
      Refuse(response, 403, "a page of another site may not ask this");
      return false;
    }
    return true;
  }

  bool CheckToken(const httplib::Request& request,
                  httplib::Response& response) const {
    if (options_.token.empty()) return true;
    const std::string header = request.get_header_value("Authorization");
    absl::string_view bearer = header;
    if (absl::ConsumePrefix(&bearer, "Bearer ") &&
        TokensMatch(bearer, options_.token)) {
      return true;
    }
    if (TokensMatch(request.get_param_value("token"), options_.token)) {
      return true;
    }
    LogRefusal(Peer(request), What(request),
               header.empty() && !request.has_param("token")
                   ? "it carries no token"
                   : "its token is wrong");
    response.set_header("WWW-Authenticate", "Bearer");
    Refuse(response, 401,
           "this cluster needs its token: send 'Authorization: Bearer "
           "<token>', or open the address that `miniray start` printed");
    return false;
  }

  const Options options_;
  HttpServer server_;
  int port_ = -1;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DashboardServer>> DashboardServer::Start(
    Options options) {
  TlsContext tls;
  if (!options.tls_dir.empty()) {
    // Where there is no token, the certificate is what proves who asks.
    MR_ASSIGN_OR_RETURN(tls,
                        MakeTlsContext(options.tls_dir, options.token.empty()));
  }
  auto server =
      std::make_unique<DashboardServerImpl>(std::move(options), std::move(tls));
  MR_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace miniray
