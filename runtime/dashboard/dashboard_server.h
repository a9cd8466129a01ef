// The dashboard: an HTTP server in the head's process that shows what happens
// in the cluster, as pages and as JSON; HTTPS where the cluster uses TLS. The
// JSON is described in API.md. Also /metrics, for Prometheus.

#ifndef MINIRAY_RUNTIME_DASHBOARD_DASHBOARD_SERVER_H_
#define MINIRAY_RUNTIME_DASHBOARD_DASHBOARD_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/actor.pb.h"
#include "proto/head.pb.h"
#include "proto/run.pb.h"

namespace miniray {

// Answers only requests whose Host is loopback or Options::host, and whose
// Origin, if any, is the dashboard itself: 403 otherwise. Methods other than
// GET, HEAD and, on the paths that change something, POST: 405. Each connection
// that is refused has a line in the log. Thread-safe.
class DashboardServer {
 public:
  // A log that is being read: returns what comes next of it, and waits for it
  // at most so long; nothing: none came. Errors: OUT_OF_RANGE, all was read;
  // those of ReadLog (proto/head.proto). Called by one thread. When the last
  // copy goes, the reading ends.
  using LogSource = std::function<absl::StatusOr<std::optional<v1::LogChunk>>(
      absl::Duration timeout)>;

  struct Options {
    std::string host = "127.0.0.1";  // IP address to listen on.
    int port = 0;                    // 0: one that is free.
    // If not empty, /api/ and /metrics need it ("Authorization: Bearer <token>"
    // or, to read only, ?token=<token>): 401 otherwise.
    std::string token;
    // A folder for --tls_dir: HTTPS with the node's certificate. A client's
    // certificate is checked if it shows one; it needs one where there is no
    // token. Empty: HTTP.
    std::string tls_dir;
    // How long a client may take for its TLS handshake, and for each request.
    absl::Duration patience = absl::Seconds(5);

    // --- What there is to show, and to do. Called from several threads at
    // once, until Shutdown has returned. What is null is answered with 404.

    // All tables. Not null.
    std::function<v1::GetClusterStateResponse()> state;
    // The tables asked for; of the actors those for which `keep_actor` is true,
    // or all where it is null. Null: taken from `state`, slowly.
    std::function<v1::GetClusterStateResponse(
        const std::set<v1::Table>& tables,
        const std::function<bool(const v1::ActorInfo&)>& keep_actor)>
        select_state;
    // Is another one when something in the tables has changed; called twice a
    // second while somebody watches. Null: made of `state`.
    std::function<uint64_t()> state_fingerprint;
    // What nodes use, and of the actors these. Null: nobody knows.
    std::function<v1::GetUsageResponse(
        const std::vector<std::string>& actor_ids)>
        usage;
    // Of the timeline.
    std::function<v1::GetCallRecordsResponse(const v1::GetCallRecordsRequest&)>
        call_records;
    // What an actor's process tells of its calls.
    std::function<absl::StatusOr<v1::InspectResponse>(
        const std::string& actor_id)>
        inspect_actor;
    std::function<absl::StatusOr<LogSource>(const v1::ReadLogRequest&)>
        read_log;
    std::function<absl::StatusOr<v1::StopJobResponse>(
        const v1::StopJobRequest&)>
        stop_job;

    // proto/run.proto.
    std::function<absl::StatusOr<v1::ListRunsResponse>(
        const v1::ListRunsRequest&)>
        list_runs;
    std::function<absl::StatusOr<v1::GetRunResponse>(const v1::GetRunRequest&)>
        get_run;
    std::function<absl::StatusOr<v1::GetRunImageResponse>(
        const v1::GetRunImageRequest&)>
        get_run_image;
    std::function<absl::StatusOr<v1::StopRunResponse>(
        const v1::StopRunRequest&)>
        stop_run;
    // Returns a number that changes with every change of any run: at once if it
    // is not `version`, else when it changes, or after `timeout`. Null: pages
    // hear nothing of runs by themselves.
    std::function<int64_t(int64_t version, absl::Duration timeout)> await_runs;

    // The text of /metrics.
    std::function<std::string()> metrics;
    // The JSON of /api/v1/prometheus/targets; host: at which the one who asks
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
