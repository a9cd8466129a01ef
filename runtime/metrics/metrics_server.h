// /metrics over HTTP, for a process that has no other page; HTTPS where the
// cluster uses TLS. (The head's stands beside its dashboard.)

#ifndef MINIRAY_RUNTIME_METRICS_METRICS_SERVER_H_
#define MINIRAY_RUNTIME_METRICS_METRICS_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace miniray {

// Thread-safe.
class MetricsServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // IP address to listen on.
    int port = 0;                    // 0: one that is free.
    // If not empty, a request needs it ("Authorization: Bearer <token>"): 401
    // otherwise. Without it only requests are answered whose Host is loopback
    // or `host`, so that no web site can have its visitor's browser read them:
    // 403 otherwise. So is any request from a page (Origin).
    std::string token;
    // A folder for --tls_dir: HTTPS with the node's certificate. Where there is
    // no token, a client needs a certificate of the cluster. Empty: HTTP.
    std::string tls_dir;
    // How long a client may take for its TLS handshake, and for each request.
    absl::Duration patience = absl::Seconds(5);
    // The text of a MetricPage. Called for each request, from several threads
    // at once.
    std::function<std::string()> page;
  };

  // Errors: UNAVAILABLE, it cannot listen there (the port is in use); those of
  // ReadCertificateFolder (rpc/certificates.h).
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(Options options);

  virtual ~MetricsServer() = default;

  virtual const std::string& address() const = 0;  // HOST:PORT

  // Returns once no request is being answered, within a second or so.
  // Idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_METRICS_METRICS_SERVER_H_
