// The methods of ParameterServer that concern gradients.

#include "ps/gradient_methods.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ps/gradient_server.h"
#include "ps/parameter_server.h"
#include "ps/strategy_registry.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

// Pushes of workers whose number is not known; beyond, they queue.
constexpr int kFewThreads = 64;

std::string NamesTaking(bool gradients) {
  return absl::StrJoin(StrategyRegistry::Get().NamesTaking(gradients), ", ");
}

}  // namespace

absl::Status CheckGradientOptions(absl::string_view strategy,
                                  bool takes_gradients,
                                  const ServerOptions& options) {
  if (takes_gradients && NeedsExchange(options)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "strategy '", strategy,
        "' takes gradients: from_workers, to_workers, num_shards and "
        "piece_bytes concern weights, and have no effect on them"));
  }
  if (takes_gradients ||
      (options.mode == SyncMode::kSynchronous && options.num_workers == 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "strategy '", strategy,
      "' takes weights: mode, num_workers and max_staleness have no effect; "
      "those that take gradients are ",
      NamesTaking(true)));
}

void AddGradientThreads(const ServerOptions& options, ActorOptions* actor) {
  // A worker that restarts may push while its earlier push still waits.
  const int wanted = std::max(
      kFewThreads,
      2 * static_cast<int>(std::min(options.num_workers, kMaxPushingWorkers)));
  actor->concurrency_groups.push_back(
      {.name = "gradients",
       .max_concurrency = wanted,
       .methods = {MethodName<&ParameterServer::PushGradients>()}});
}

absl::Status ParameterServer::CheckTakes(bool gradients) const {
  if ((gradients_ != nullptr) == gradients) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "strategy ", stats_.strategy, " takes ",
      gradients ? "weights, not gradients (SyncFromWorkers)"
                : "gradients, not weights (SyncGradientsFromWorkers, "
                  "GradientClient)",
      "; those that take ", gradients ? "gradients" : "weights", " are ",
      NamesTaking(gradients)));
}

void ParameterServer::FollowGradients() {
  const std::shared_ptr<const ModelSnapshot> model = gradients_->Snapshot();
  stats_.version = model->version;
  if (model->empty()) return;
  layout_ = model->layout;
  weights_ = model->weights;
}

absl::StatusOr<SyncResult> ParameterServer::SyncGradientsFromWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/true));
  return Sync(workers, "");
}

absl::StatusOr<JoinReply> ParameterServer::JoinGradients(
    int worker_id, NamedTensors weights, std::vector<std::string> buffers) {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/true));
  return gradients_->Join(worker_id, std::move(weights), std::move(buffers));
}

absl::StatusOr<PushReply> ParameterServer::PushGradients(
    ReadOnly<NamedTensors> gradients, int64_t version, PushId id) {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/true));
  return gradients_->Push(std::move(gradients.value), version, id);
}

absl::StatusOr<VersionedWeights> ParameterServer::PullVersionedWeights() const {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/true));
  return gradients_->Pull();
}

absl::Status ParameterServer::LeaveGradients(int worker_id) {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/true));
  return gradients_->Leave(worker_id);
}

}  // namespace miniray::ps
