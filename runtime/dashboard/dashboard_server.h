// The dashboard: an HTTP server in the head's process that shows the cluster's
// tables.
//
//   GET /              one page, without requests to anywhere else
//   GET /api/v1/state  GetClusterStateResponse as JSON

#ifndef MINIRAY_RUNTIME_DASHBOARD_DASHBOARD_SERVER_H_
#define MINIRAY_RUNTIME_DASHBOARD_DASHBOARD_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/head.pb.h"

namespace miniray {

// Answers only requests whose Host is loopback or Options::host, and whose
// Origin, if any, is the dashboard itself: 403 otherwise. Thread-safe.
class DashboardServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // IP address to listen on.
    int port = 0;                    // 0: one that is free.
    // If not empty, /api/ needs it ("Authorization: Bearer <token>" or
    // ?token=<token>): 401 otherwise.
    std::string token;
    // Called for each request, from several threads at once.
    std::function<v1::GetClusterStateResponse()> state;
  };

  // Errors: UNAVAILABLE, it cannot listen there (the port is in use).
  static absl::StatusOr<std::unique_ptr<DashboardServer>> Start(
      Options options);

  virtual ~DashboardServer() = default;

  virtual int port() const = 0;

  // Returns once no request is being answered. Idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_DASHBOARD_SERVER_H_
