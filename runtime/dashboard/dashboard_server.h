// The dashboard: an HTTP server in the head's process that shows the cluster's
// tables; HTTPS where the cluster uses TLS.
//
//   GET /              one page, without requests to anywhere else
//   GET /api/v1/state  GetClusterStateResponse as JSON
//   GET /metrics       for Prometheus, and where it finds more:
//   GET /api/v1/prometheus/targets

#ifndef MINIRAY_RUNTIME_DASHBOARD_DASHBOARD_SERVER_H_
#define MINIRAY_RUNTIME_DASHBOARD_DASHBOARD_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"

namespace miniray {

// Answers only requests whose Host is loopback or Options::host, and whose
// Origin, if any, is the dashboard itself: 403 otherwise. Methods other than
// GET and HEAD: 405. Each connection that is refused has a line in the log.
// Thread-safe.
class DashboardServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // IP address to listen on.
    int port = 0;                    // 0: one that is free.
    // If not empty, /api/ needs it ("Authorization: Bearer <token>" or
    // ?token=<token>): 401 otherwise.
    std::string token;
    // A folder for --tls_dir: HTTPS with the node's certificate. A client's
    // certificate is checked if it shows one; it needs one where there is no
    // token. Empty: HTTP.
    std::string tls_dir;
    // How long a client may take for its TLS handshake, and for each request.
    absl::Duration patience = absl::Seconds(5);
    // Called for each request, from several threads at once.
    std::function<v1::GetClusterStateResponse()> state;
    // The text of /metrics, which needs the token as /api/ does. Null: there is
    // no such page.
    std::function<std::string()> metrics;
    // The same for /api/v1/prometheus/targets; host: at which the one who asks
    // reaches the dashboard (HOST:PORT).
    std::function<std::string(const std::string& host)> metric_targets;
  };

  // Errors: UNAVAILABLE, it cannot listen there (the port is in use); those of
  // ReadCertificateFolder (rpc/certificates.h).
  static absl::StatusOr<std::unique_ptr<DashboardServer>> Start(
      Options options);

  virtual ~DashboardServer() = default;

  virtual int port() const = 0;

  // Returns once no request is being answered, within a second or so: who is
  // still to send a request, or reads too slowly, is cut off. Idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_DASHBOARD_SERVER_H_
