#include "runtime/metrics/metrics_server.h"

#include <httplib.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/http/access.h"
#include "runtime/http/http_server.h"
#include "runtime/http/tls_context.h"
#include "runtime/metrics/metric_page.h"

namespace miniray {
namespace {

// Prometheus has one connection; a few more for people who look.
constexpr size_t kMaxConnections = 4;
constexpr char kText[] = "text/plain; charset=utf-8";

class MetricsServerImpl : public MetricsServer {
 public:
  MetricsServerImpl(Options options, TlsContext tls)
      : options_(std::move(options)),
        server_(std::move(tls), options_.patience, kMaxConnections,
                "/metrics") {
    server_.set_default_headers(
        {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}});
    // Not httplib's routes: they are regular expressions, which recurse for
    // each byte of a path.
    server_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          HttpServer::BeginAnswer();
          Serve(request, response);
          return httplib::Server::HandlerResponse::Handled;
        });
  }

  ~MetricsServerImpl() override { Shutdown(); }

  absl::Status Listen() {
    MR_ASSIGN_OR_RETURN(const int port,
                        server_.Listen(options_.host, options_.port));
    address_ = JoinHostPort(options_.host, port);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void Shutdown() override { server_.Shutdown(); }

 private:
  void Serve(const httplib::Request& request,
             httplib::Response& response) const {
    if (!Check(request, response)) return;
    if (request.path != "/metrics") {
      response.status = 404;
      return response.set_content("there is /metrics alone\n", kText);
    }
    if (!request.ranges.empty()) {
      // cpp-httplib would not compare them with the size of the page.
      response.status = 416;
      return;
    }
    response.status = 200;
    response.set_content(options_.page(), kMetricPageType);
  }

  // False: it is refused, and has its answer.
  bool Check(const httplib::Request& request,
             httplib::Response& response) const {
    if (request.method != "GET" && request.method != "HEAD") {
      // Whatever else it brings is not even read.
      HttpServer::HangUp();
      response.set_header("Allow", "GET, HEAD");
      return Refuse(request, response, 405, "only GET is answered",
                    "only GET is answered");
    }
    if (request.has_header("Origin")) {
      return Refuse(request, response, 403, "it is of a web page",
                    "a web page may not ask this");
    }
    if (options_.token.empty()) {
      const std::string host = request.get_header_value("Host");
      return IsOwnHost(host, options_.host) ||
             Refuse(request, response, 403,
                    absl::StrCat("its Host is '", host, "'"),
                    "this Host is not the node's; ask for its IP address");
    }
    const std::string header = request.get_header_value("Authorization");
    if (BearsToken(header, options_.token)) return true;
    response.set_header("WWW-Authenticate", "Bearer");
    return Refuse(request, response, 401,
                  header.empty() ? "it carries no token" : "its token is wrong",
                  "this cluster needs its token: send 'Authorization: Bearer "
                  "<token>', in Prometheus's configuration `authorization:` "
                  "with `credentials_file:`");
  }

  bool Refuse(const httplib::Request& request, httplib::Response& response,
              int code, absl::string_view for_log,
              absl::string_view why) const {
    HttpServer::LogRefused(request, for_log);
    response.status = code;
    response.set_content(absl::StrCat(why, "\n"), kText);
    return false;
  }

  const Options options_;
  HttpServer server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    Options options) {
  MR_ASSIGN_OR_RETURN(TlsContext tls,
                      MakeTlsContext(options.tls_dir, options.token.empty()));
  auto server =
      std::make_unique<MetricsServerImpl>(std::move(options), std::move(tls));
  MR_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace miniray
