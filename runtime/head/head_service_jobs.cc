// The part of HeadService about jobs, logs, the timeline and usage.

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/head/head_service.h"
#include "runtime/head/head_streams.h"
#include "runtime/head/log_stream.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

template <class Response>
ClusterState::JobCallback AnswerJob(grpc::ServerUnaryReactor* reactor,
                                    Response* response) {
  return [reactor, response](absl::StatusOr<v1::JobInfo> job) {
    if (job.ok()) *response->mutable_job() = *std::move(job);
    reactor->Finish(ToGrpcStatus(job.status()));
  };
}

}  // namespace

grpc::ServerUnaryReactor* HeadService::SubmitJob(
    grpc::CallbackServerContext* context, const v1::SubmitJobRequest* request,
    v1::SubmitJobResponse* response) {
  absl::Status status = admission_.Check(*context);
  const v1::JobSpec& spec = request->spec();
  if (status.ok() && !packages_->Has(spec.package_id())) {
    status = absl::FailedPreconditionError(
        "upload the program before a job that runs it is submitted");
  }
  if (status.ok() && !spec.folder_id().empty() &&
      !packages_->Has(spec.folder_id())) {
    status = absl::FailedPreconditionError(
        "upload the working folder before its job is submitted");
  }
  if (!status.ok()) return FinishUnary(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->SubmitJob(spec, AnswerJob(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* HeadService::GetJob(
    grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
    v1::GetJobResponse* response) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return FinishUnary(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->GetJob(*request, AnswerJob(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* HeadService::StopJob(
    grpc::CallbackServerContext* context, const v1::StopJobRequest* request,
    v1::StopJobResponse* response) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return FinishUnary(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->StopJob(request->job_id(), [reactor](const absl::Status& status) {
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::LogChunk>* HeadService::ReadLog(
    grpc::CallbackServerContext* context, const v1::ReadLogRequest* request) {
  absl::Status status = admission_.Check(*context);
  if (status.ok()) {
    absl::StatusOr<ClusterState::LogPlace> place = state_->FindLog(*request);
    if (place.ok()) return NewLogStream(logs_, state_, *std::move(place));
    status = place.status();
  }
  return new RefusedStream<grpc::ServerWriteReactor<v1::LogChunk>>(status);
}

grpc::ServerUnaryReactor* HeadService::GetCallRecords(
    grpc::CallbackServerContext* context,
    const v1::GetCallRecordsRequest* request,
    v1::GetCallRecordsResponse* response) {
  const absl::Status status = admission_.Check(*context);
  if (status.ok()) *response = CallRecords(*request);
  return FinishUnary(context, status);
}

v1::GetCallRecordsResponse HeadService::CallRecords(
    const v1::GetCallRecordsRequest& request) const {
  v1::GetCallRecordsResponse response = calls_->Get(request.job_id());
  for (v1::NodeClock& clock : state_->NodeClocks()) {
    *response.add_clocks() = std::move(clock);
  }
  return response;
}

grpc::ServerUnaryReactor* HeadService::GetUsage(
    grpc::CallbackServerContext* context, const v1::GetUsageRequest* request,
    v1::GetUsageResponse* response) {
  const absl::Status status = admission_.Check(*context);
  if (status.ok()) *response = state_->Usage();
  return FinishUnary(context, status);
}

}  // namespace miniray
