// What is under /api/v1/, and /metrics (API.md).

#ifndef MINIRAY_RUNTIME_DASHBOARD_API_H_
#define MINIRAY_RUNTIME_DASHBOARD_API_H_

#include <httplib.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/dashboard/change_feed.h"
#include "runtime/dashboard/dashboard_server.h"
#include "runtime/dashboard/routes.h"
#include "runtime/dashboard/stream_slots.h"

namespace miniray {

// Thread-safe. Its parts have a file each: api.cc, api_cluster.cc,
// api_metrics.cc, api_runs.cc, api_streams.cc, api_timeline.cc.
class Api {
 public:
  // Answers that are streams, at once. The server has twice as many threads.
  static constexpr int kMaxStreams = 16;
  // Timelines that are sent at once: each holds what the head knows of calls
  // and spans, tens of megabytes.
  static constexpr int kMaxTimelines = 2;

  // `options` outlives it.
  explicit Api(const DashboardServer::Options* options);

  // They refer to this.
  void AddTo(Routes* routes);

  // Ends all streams within a second. Idempotent.
  void Stop() { feed_.Stop(); }

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;
  using Args = Routes::Args;

  void AddClusterTo(Routes* routes);
  void AddMetricsTo(Routes* routes);
  void AddRunsTo(Routes* routes);
  void AddStreamsTo(Routes* routes);
  void AddTimelineTo(Routes* routes);

  // --- Nodes, actors, jobs.

  v1::GetUsageResponse Usage(const std::vector<std::string>& actor_ids) const;
  v1::GetClusterStateResponse Select(
      const std::set<v1::Table>& tables,
      const std::function<bool(const v1::ActorInfo&)>& keep_actor) const;
  void State(const Request& request, Response& response) const;
  void Nodes(const Request& request, Response& response) const;
  void Actors(const Request& request, Response& response) const;
  void Actor(const std::string& id, Response& response) const;
  void ActorCalls(const std::string& id, Response& response) const;
  void Jobs(const Request& request, Response& response) const;
  void Job(const std::string& id, Response& response) const;
  void StopJob(const std::string& id, Response& response) const;

  // --- Trainings.

  void Runs(Response& response) const;
  void Run(const std::string& id, const Request& request,
           Response& response) const;
  void RunImage(const std::string& id, const std::string& file,
                Response& response) const;
  void StopRun(const std::string& id, Response& response) const;

  // --- The timeline.

  absl::StatusOr<v1::GetRunResponse> RunWithSpans(const std::string& id) const;
  // Those that go with the calls.
  absl::StatusOr<std::vector<v1::GetRunResponse>> RunsWithSpans(
      const std::string& job_id, const v1::GetCallRecordsResponse& calls) const;
  void Timeline(const Request& request, Response& response);

  // --- Prometheus.

  void Metrics(Response& response) const;
  void MetricTargets(const Request& request, Response& response) const;

  // --- Streams.

  // Null: there are too many, and the response says so.
  std::shared_ptr<void> TakeSlot(Response& response);
  void Events(Response& response);
  void Logs(const Request& request, Response& response);

  const DashboardServer::Options& options_;
  StreamSlots slots_{kMaxStreams};
  StreamSlots timelines_{kMaxTimelines};
  ChangeFeed feed_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_API_H_
