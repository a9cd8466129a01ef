#include "runtime/dashboard/dashboard_server.h"

#include <httplib.h>

#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/token.h"
#include "runtime/dashboard/answers.h"
#include "runtime/dashboard/api.h"
#include "runtime/dashboard/assets.h"
#include "runtime/dashboard/routes.h"
#include "runtime/http/access.h"
#include "runtime/http/http_server.h"
#include "runtime/http/tls_context.h"

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
    MR_ASSIGN_OR_RETURN(port_, server_.Listen(options_.host, options_.port));
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void Shutdown() override {
    api_.Stop();
    server_.Shutdown();
  }

 private:
  void Configure() {
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
      HttpServer::LogRefused(request, "its body is not as it must be");
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
      HttpServer::LogRefused(
          request, absl::StrCat("only ", allow, " is answered there"));
    }
    response.set_header("Allow", allow);
    Refuse(response, 405, absl::StrCat("only ", allow, " is answered here"));
  }

  bool CheckSource(const httplib::Request& request,
                   httplib::Response& response) const {
    const std::string host = request.get_header_value("Host");
    if (!IsOwnHost(host, options_.host)) {
      HttpServer::LogRefused(request, absl::StrCat("its Host is '", host, "'"));
      Refuse(response, 403,
             "this Host is not the dashboard's; open it at 127.0.0.1 or "
             "localhost");
      return false;
    }
    const std::string origin = request.get_header_value("Origin");
    if (request.has_header("Origin") && !IsOwnOrigin(origin, host, tls())) {
      HttpServer::LogRefused(request,
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
    if (BearsToken(header, options_.token)) return true;
    // Addresses are remembered and passed on: they open nothing that changes
    // something.
    const bool in_address = request.has_param("token");
    if (access != Access::kWrite &&
        TokensMatch(request.get_param_value("token"), options_.token)) {
      return true;
    }
    HttpServer::LogRefused(
        request, header.empty() && !(in_address && access != Access::kWrite)
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
    HttpServer::LogRefused(request, why);
    Refuse(response, 403, why);
    return false;
  }

  bool tls() const { return !options_.tls_dir.empty(); }

  const Options options_;
  Api api_;
  Routes routes_;
  HttpServer server_;
  int port_ = -1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DashboardServer>> DashboardServer::Start(
    Options options) {
  MR_ASSIGN_OR_RETURN(TlsContext tls,
                      MakeTlsContext(options.tls_dir, options.token.empty()));
  auto server =
      std::make_unique<DashboardServerImpl>(std::move(options), std::move(tls));
  MR_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace miniray
