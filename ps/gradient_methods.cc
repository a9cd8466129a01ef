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

bool AreOnlyPushed(const ServerOptions& options) {
  return options.num_shards > 1 ||
         options.from_workers.method != Compression::kNone;
}

std::string NamesTaking(bool gradients) {
  return absl::StrJoin(StrategyRegistry::Get().NamesTaking(gradients), ", ");
}

}  // namespace

absl::Status CheckGradientOptions(absl::string_view strategy,
                                  bool takes_gradients,
                                  const ServerOptions& options) {
  if (takes_gradients && (options.to_workers.method != Compression::kNone ||
                          options.piece_bytes > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "strategy '", strategy,
        "' takes gradients: to_workers and piece_bytes concern weights that "
        "all workers hold the same of, and have no effect; from_workers "
        "compresses the gradients"));
  }
  if (takes_gradients && AreOnlyPushed(options) && StepsInRounds(options) &&
      options.num_workers == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "strategy '", strategy,
        "' with num_shards above 1, or from_workers, takes gradients that "
        "workers push, and num_workers does not say how many make a round; set "
        "it, or mode"));
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

absl::Status CheckPullsGradients(const ServerOptions& options) {
  if (!AreOnlyPushed(options)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a parameter server with num_shards above 1, or from_workers, does not "
      "pull gradients: workers push theirs (GradientClient); with the defaults "
      "of both it does");
}

absl::Status ParameterServer::CheckTakes(bool gradients) const {
  if (strategy_->TakesGradients() == gradients) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "strategy ", stats_.strategy, " takes ",
      gradients ? "weights, not gradients (SyncFromWorkers)"
                : "gradients, not weights (SyncGradientsFromWorkers, "
                  "GradientClient)",
      "; those that take ", gradients ? "gradients" : "weights", " are ",
      NamesTaking(gradients)));
}

absl::Status ParameterServer::CheckHasGradients() const {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/true));
  if (gradients_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the parameter server has several shards, which workers push to and pull "
      "from themselves; use GradientClient");
}

void ParameterServer::FollowGradients() {
  const std::shared_ptr<const ModelSnapshot> model = gradients_->Snapshot();
  stats_.version = model->version;
  if (model->empty()) return;
  layout_ = model->layout;
  weights_ = model->weights;
}

absl::Status ParameterServer::PushOfShards(
    const std::vector<AnyActorHandle>& workers) {
  MR_ASSIGN_OR_RETURN(weights_, sharded_gradients_->Pull());
  const absl::Status pushed = Push(workers);
  weights_.clear();
  return pushed;
}

absl::StatusOr<JoinReply> ParameterServer::JoinGradients(
    int worker_id, NamedTensors weights, std::vector<std::string> buffers) {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/true));
  if (sharded_gradients_ != nullptr) {
    MR_RETURN_IF_ERROR(
        Annotate(sharded_gradients_->StartIfEmpty(weights, buffers),
                 absl::StrCat("worker ", worker_id)));
    return JoinReply();
  }
  if (IsShard() && gradients_->Snapshot()->empty()) return JoinReply();
  return gradients_->Join(worker_id, std::move(weights), std::move(buffers));
}

absl::StatusOr<int64_t> ParameterServer::StartGradientPart(
    const ReadOnly<WeightMessage>& part,
    const std::optional<std::vector<std::string>>& buffers, int64_t version) {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/true));
  NamedTensors weights;  // A copy: these are lent.
  for (const auto& [name, tensor] : part.value.tensors) {
    weights.emplace_back(name, tensor.clone());
  }
  return gradients_->Start(std::move(weights), buffers, part.value.parts,
                           version);
}

absl::StatusOr<PushReply> ParameterServer::PushGradients(
    ReadOnly<GradientPush> push) {
  MR_RETURN_IF_ERROR(CheckHasGradients());
  return gradients_->Push(std::move(push.value));
}

absl::StatusOr<PullReply> ParameterServer::PullVersionedWeights() const {
  MR_RETURN_IF_ERROR(CheckHasGradients());
  return gradients_->Pull();
}

absl::Status ParameterServer::LeaveGradients(int worker_id) {
  MR_RETURN_IF_ERROR(CheckHasGradients());
  return gradients_->Leave(worker_id);
}

}  // namespace miniray::ps
