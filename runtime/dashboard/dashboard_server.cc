#include "runtime/dashboard/dashboard_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
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
#include "runtime/dashboard/answers.h"
#include "runtime/dashboard/api.h"
#include "runtime/dashboard/assets.h"
#include "runtime/dashboard/http_server.h"
#include "runtime/dashboard/routes.h"
#include "runtime/dashboard/tls_context.h"

namespace miniray {
namespace {

// What POST may bring; none of it is looked at.
constexpr size_t kMaxBody = 4 << 10;

const httplib::Headers& SecurityHeaders() {
  static const auto* const headers = new httplib::Headers{
      {"Cache-Control", "no-store"},
      // Scripts, styles and data of this server alone; images that a script
      // made of what it fetched with the token.
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; "
       "img-src 'self' blob:; connect-src 'self'; base-uri 'none'; "
       "form-action 'none'; frame-ancestors 'none'"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
  };
  return *headers;
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
        api_(&options_),
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
    api_.Stop();
    server_.EndConnections();
    server_.stop();
    thread_.join();
  }

 private:
  void Configure() {
    // Not httplib's default SO_REUSEPORT: with it two heads could share a port
    // without noticing.
    server_.set_socket_options([](int socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server_.set_default_headers(SecurityHeaders());
    server_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Serve(request, response);
          return httplib::Server::HandlerResponse::Handled;
        });
  }

  // What the dashboard serves. Everything with data is the Api's.
  void AddRoutes() {
    for (const EmbeddedFile& file : EmbeddedFiles()) {
      const bool is_page = file.name == "index.html";
      routes_.Add("GET", is_page ? "/" : absl::StrCat("/assets/", file.name),
                  Access::kOpen,
                  [file, tag = EntityTagOf(file.bytes)](
                      const httplib::Request& request, const Routes::Args&,
                      httplib::Response& response) {
                    ServeFile(file, tag, request, response);
                  });
    }
    api_.AddTo(&routes_);
  }

  static void ServeFile(const EmbeddedFile& file, const std::string& tag,
                        const httplib::Request& request,
                        httplib::Response& response) {
    // Kept, and asked for anew each time: after an upgrade of the head no page
    // runs with the scripts of another.
    ReplaceHeader(response, "Cache-Control", "no-cache");
    response.set_header("ETag", tag);
    if (request.get_header_value("If-None-Match") == tag) {
      response.status = 304;
      return;
    }
    AnswerStatic(response, file.bytes, ContentTypeOf(file.name));
  }

  void Serve(const httplib::Request& request, httplib::Response& response) {
    const int unread = SkipBody(request);
    HttpServer::BeginAnswer();
    if (!CheckSource(request, response)) return;
    const Routes::Found found = routes_.Find(request.method, request.path);
    if (found.route == nullptr) return RefuseRoute(request, found, response);
    if (unread != 0) {
      LogRefusal(Peer(request), What(request), "its body is not as it must be");
      return Refuse(response, unread,
                    absl::StrCat("send at most ", kMaxBody,
                                 " bytes, with a Content-Length"));
    }
    if (!request.ranges.empty()) {
      // cpp-httplib would not compare them with the size of the answer.
      response.status = 416;
      return;
    }
    if (found.route->access != Access::kOpen &&
        !CheckToken(request, found.route->access, response)) {
      return;
    }
    if (found.route->access == Access::kWrite &&
        !CheckWrite(request, response)) {
      return;
    }
    found.route->handler(request, found.args, response);
  }

  // Returns 0, or the status that says why not.
  static int SkipBody(const httplib::Request& request) {
    // Of GET nothing is expected, and nothing read.
    if (request.method == "GET" || request.method == "HEAD") return 0;
    if (request.method == "POST" && !request.has_header("Expect")) {
      return HttpServer::SkipBody(request, kMaxBody);
    }
    HttpServer::HangUp();
    return 417;
  }

  static void RefuseRoute(const httplib::Request& request,
                          const Routes::Found& found,
                          httplib::Response& response) {
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (reads && found.allow.empty()) {
      return Refuse(
          response, 404,
          "there is nothing under this path; runtime/dashboard/API.md "
          "says what there is");
    }
    const std::string allow = found.allow.empty() ? "GET, HEAD" : found.allow;
    if (!reads) {
      LogRefusal(Peer(request), What(request),
                 absl::StrCat("only ", allow, " is answered there"));
    }
    response.set_header("Allow", allow);
    Refuse(response, 405, absl::StrCat("only ", allow, " is answered here"));
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
    if (request.has_header("Origin") && !IsOwnOrigin(origin, host, tls())) {
      LogRefusal(Peer(request), What(request),
                 absl::StrCat("its Origin is '", origin, "'"));
      Refuse(response, 403, "a page of another site may not ask this");
      return false;
    }
    return true;
  }

  bool CheckToken(const httplib::Request& request, Access access,
                  httplib::Response& response) const {
    if (options_.token.empty()) return true;
    const std::string header = request.get_header_value("Authorization");
    absl::string_view bearer = header;
    if (absl::ConsumePrefix(&bearer, "Bearer ") &&
        TokensMatch(bearer, options_.token)) {
      return true;
    }
    // Addresses are remembered and passed on: they open nothing that changes
    // something.
    const bool in_address = request.has_param("token");
    if (access != Access::kWrite &&
        TokensMatch(request.get_param_value("token"), options_.token)) {
      return true;
    }
    LogRefusal(Peer(request), What(request),
               header.empty() && !(in_address && access != Access::kWrite)
                   ? "it carries no token"
                   : "its token is wrong");
    response.set_header("WWW-Authenticate", "Bearer");
    Refuse(response, 401,
           "this cluster needs its token: send 'Authorization: Bearer "
           "<token>', or open the address that `miniray start` printed");
    return false;
  }

  bool CheckWrite(const httplib::Request& request,
                  httplib::Response& response) const {
    if (!options_.token.empty()) return true;
    const std::string host = request.get_header_value("Host");
    const std::string origin = request.get_header_value("Origin");
    const std::string content_type = request.get_header_value("Content-Type");
    const std::string why =
        WhyNoWriteWithoutToken({.host = host,
                                .origin = origin,
                                .content_type = content_type,
                                .tls = tls()});
    if (why.empty()) return true;
    LogRefusal(Peer(request), What(request), why);
    Refuse(response, 403, why);
    return false;
  }

  bool tls() const { return !options_.tls_dir.empty(); }

  const Options options_;
  Api api_;
  Routes routes_;
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
