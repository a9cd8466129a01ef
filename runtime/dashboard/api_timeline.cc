// The part of Api that hands out the trace of what happened.

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/dashboard/answers.h"
#include "runtime/dashboard/api.h"
#include "runtime/http/http_server.h"
#include "runtime/runs/run_checks.h"
#include "runtime/timeline/timeline_json.h"
#include "runtime/timeline/timeline_runs.h"

namespace miniray {
namespace {

// With the charset: cpp-httplib would compress what is called JSON alone.
constexpr char kTraceType[] = "application/json; charset=utf-8";
constexpr char kDisposition[] =
    "attachment; filename=\"miniray-timeline.json\"";

// Its text is made as it is sent: there is never all of it.
struct Trace {
  std::shared_ptr<void> slot;
  v1::GetCallRecordsResponse calls;
  std::vector<v1::GetRunResponse> runs;

  // False: nobody reads it any more.
  bool Write(httplib::DataSink& sink) const {
    bool is_read = true;
    WriteTimeline(calls, runs, [&](absl::string_view piece) {
      if (!is_read) return;
      HttpServer::RenewAnswer();
      is_read = sink.write(piece.data(), piece.size());
    });
    if (is_read) sink.done();
    return is_read;
  }
};

}  // namespace

void Api::AddTimelineTo(Routes* routes) {
  routes->Add("GET", "/api/v1/timeline", Access::kData,
              [this](const Request& request, const Args&, Response& response) {
                Timeline(request, response);
              });
}

absl::StatusOr<v1::GetRunResponse> Api::RunWithSpans(
    const std::string& id) const {
  if (!options_.get_run) return absl::NotFoundError(kNoRuns);
  MR_RETURN_IF_ERROR(CheckRunId(id));
  v1::GetRunRequest request;
  request.set_run_id(id);
  request.set_max_points(2);  // The fewest: they are not looked at.
  request.set_with_spans(true);
  return options_.get_run(request);
}

absl::StatusOr<std::vector<v1::GetRunResponse>> Api::RunsWithSpans(
    const std::string& job_id, const v1::GetCallRecordsResponse& calls) const {
  std::vector<v1::GetRunResponse> runs;
  if (!options_.list_runs) return runs;
  MR_ASSIGN_OR_RETURN(const v1::ListRunsResponse list, options_.list_runs({}));
  for (const std::string& id : RunsOfTimeline(list, calls, job_id)) {
    absl::StatusOr<v1::GetRunResponse> run = RunWithSpans(id);
    if (absl::IsNotFound(run.status())) continue;  // It is gone meanwhile.
    MR_RETURN_IF_ERROR(run.status());
    runs.push_back(*std::move(run));
  }
  return runs;
}

void Api::Timeline(const Request& request, Response& response) {
  if (!options_.call_records) {
    return Refuse(response, 404, "this head keeps no calls");
  }
  const auto trace = std::make_shared<Trace>();
  trace->slot = timelines_.Take();
  if (trace->slot == nullptr) {
    response.set_header("Retry-After", "5");
    return Refuse(response, 503,
                  absl::StrCat(kMaxTimelines,
                               " timelines are being sent, which is all that "
                               "there can be; ask again when they are there"));
  }
  v1::GetCallRecordsRequest wanted;
  wanted.set_job_id(request.get_param_value("job"));
  const bool of_one_run = request.has_param("run");
  if (of_one_run) {
    absl::StatusOr<v1::GetRunResponse> run =
        RunWithSpans(request.get_param_value("run"));
    if (!run.ok()) return Refuse(response, run.status());
    if (wanted.job_id().empty()) wanted.set_job_id(run->run().job_id());
    trace->runs.push_back(*std::move(run));
  }
  trace->calls = options_.call_records(wanted);
  if (!of_one_run) {
    auto runs = RunsWithSpans(wanted.job_id(), trace->calls);
    if (!runs.ok()) return Refuse(response, runs.status());
    trace->runs = *std::move(runs);
  }
  response.status = 200;
  response.set_header("Content-Disposition", kDisposition);
  response.set_chunked_content_provider(
      kTraceType,
      [trace](size_t, httplib::DataSink& sink) { return trace->Write(sink); });
}

}  // namespace miniray
