#include "runtime/runs/run_collector_service.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace miniray {
namespace {

// Answers a call that was admitted, or refused with this status.
template <class Response, class Ask>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                 absl::Status admitted, Ask ask,
                                 Response* response) {
  if (admitted.ok()) {
    absl::StatusOr<Response> answer = ask();
    if (answer.ok()) *response = *std::move(answer);
    admitted = answer.status();
  }
  return FinishUnary(context, admitted);
}

}  // namespace

grpc::ServerUnaryReactor* RunCollectorService::ReportRun(
    grpc::CallbackServerContext* context, const v1::ReportRunRequest* request,
    v1::ReportRunResponse* response) {
  return Answer(
      context, admission_.Check(*context),
      [&] { return table_.Report(*request); }, response);
}

grpc::ServerUnaryReactor* RunCollectorService::ListRuns(
    grpc::CallbackServerContext* context, const v1::ListRunsRequest* request,
    v1::ListRunsResponse* response) {
  return Answer(
      context, admission_.Check(*context),
      [&] { return table_.List(*request); }, response);
}

grpc::ServerUnaryReactor* RunCollectorService::GetRun(
    grpc::CallbackServerContext* context, const v1::GetRunRequest* request,
    v1::GetRunResponse* response) {
  return Answer(
      context, admission_.Check(*context), [&] { return table_.Get(*request); },
      response);
}

grpc::ServerUnaryReactor* RunCollectorService::GetRunImage(
    grpc::CallbackServerContext* context, const v1::GetRunImageRequest* request,
    v1::GetRunImageResponse* response) {
  return Answer(
      context, admission_.Check(*context),
      [&] { return table_.GetImage(*request); }, response);
}

grpc::ServerUnaryReactor* RunCollectorService::StopRun(
    grpc::CallbackServerContext* context, const v1::StopRunRequest* request,
    v1::StopRunResponse* response) {
  return Answer(
      context, admission_.Check(*context),
      [&] { return table_.Stop(*request); }, response);
}

}  // namespace miniray
