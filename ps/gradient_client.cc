#include "ps/gradient_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
GradientClient::GradientClient(ActorHandle<ParameterServer> server,
                               int worker_id)
    : server_(std::move(server)), worker_id_(worker_id) {}

absl::StatusOr<ReadOnly<NamedTensors>> GradientClient::Join(
    const NamedTensors& weights, const std::vector<std::string>& buffers) {
  MR_ASSIGN_OR_RETURN(
      JoinReply reply,
      server_.With(Retries())
          .Call<&ParameterServer::JoinGradients>(worker_id_, weights, buffers)
          .Get());
  version_ = reply.model.version;
  last_sequence_ = reply.last_sequence;
  return std::move(reply.model.weights);
}

absl::StatusOr<PushReply> GradientClient::Push(
    const ReadOnly<NamedTensors>& gradients) {
  if (version_ == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", worker_id_, " has no weights of the server; call Join"));
  }
  const PushId id = {.worker = worker_id_, .sequence = last_sequence_ + 1};
  absl::StatusOr<PushReply> reply =
      server_.With(Retries())
          .Call<&ParameterServer::PushGradients>(gradients, version_, id)
          .Get();
  if (absl::IsOutOfRange(reply.status())) {
    // The server restarted from an older version than it had given out.
    LOG(WARNING) << reply.status().message();
    reply = PushReply();
    MR_ASSIGN_OR_RETURN(reply->model.weights, Pull());
    reply->model.version = version_;
    return reply;
  }
  if (!reply.ok()) return reply;
  version_ = reply->model.version;
  last_sequence_ = id.sequence;
  return reply;
}

absl::StatusOr<ReadOnly<NamedTensors>> GradientClient::Pull() {
  MR_ASSIGN_OR_RETURN(VersionedWeights model,
                      server_.With(Retries())
                          .Call<&ParameterServer::PullVersionedWeights>()
                          .Get());
  version_ = model.version;
  return std::move(model.weights);
}

absl::Status GradientClient::Leave() {
  return server_.With(Retries())
      .Call<&ParameterServer::LeaveGradients>(worker_id_)
      .Get();
}

}  // namespace miniray::ps
