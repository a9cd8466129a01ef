// The methods of ParameterServer that synchronise: pull, aggregate, and what is
// noted of it.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "ps/await_calls.h"
#include "ps/gradient_methods.h"
#include "ps/parameter_server.h"
#include "ps/run_strategy.h"
#include "ps/sync_metrics.h"
#include "ps/tensor_info.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

absl::StatusOr<SyncResult> Counted(absl::StatusOr<SyncResult> result) {
  RecordSync(result);
  return result;
}

double SecondsSince(absl::Time start) {
  return absl::ToDoubleSeconds(absl::Now() - start);
}

constexpr char kWhyExchange[] =
    "compressed weights, weights in pieces, or several shards "
    "(ServerOptions)";

absl::Status CheckHandles(const std::vector<AnyActorHandle>& workers) {
  if (workers.empty()) {
    return absl::InvalidArgumentError(
        "there are no workers to synchronise; pass at least one");
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    if (workers[i].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", i, ": its handle is empty"));
    }
  }
  return absl::OkStatus();
}

// False where the strategy is bound to refuse them, and to say why.
bool MayAggregate(const SyncStrategy& strategy,
                  const std::vector<Contribution>& contributions) {
  const auto num_workers = static_cast<int64_t>(contributions.size());
  if (!strategy.CheckWorkers(num_workers).ok()) return false;
  return !strategy.UsesWorkerWeights() ||
         std::any_of(contributions.begin(), contributions.end(),
                     [](const Contribution& item) { return item.weight > 0; });
}

}  // namespace

absl::Status ParameterServer::CheckWorkers(
    const std::vector<AnyActorHandle>& workers) const {
  MR_RETURN_IF_ERROR(CheckHandles(workers));
  return view_.has_value() || sharded_ != nullptr
             ? CheckExchange(workers, kWhyExchange)
             : absl::OkStatus();
}

absl::StatusOr<SyncResult> ParameterServer::SyncFromWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/false));
  return Counted(Sync(workers, ""));
}

absl::StatusOr<SyncResult> ParameterServer::SyncOnce(
    const std::vector<AnyActorHandle>& workers, const std::string& sync_id) {
  if (sync_id.empty()) {
    return absl::InvalidArgumentError("a synchronisation's id cannot be empty");
  }
  return Counted(sharded_ != nullptr || sync_id != LastSync()
                     ? Sync(workers, sync_id)
                     : PushAgain(workers));
}

absl::StatusOr<SyncResult> ParameterServer::SyncGradientsFromWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/true));
  return Counted(Sync(workers, ""));
}

absl::StatusOr<SyncResult> ParameterServer::PushAgain(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckWorkers(workers));
  if (gradients_ != nullptr) MR_RETURN_IF_ERROR(gradients_->SaveIfFailed());
  // The disk may have been full.
  if (unsaved_ >= options_.save_every) MR_RETURN_IF_ERROR(Save());
  SyncResult result;
  result.num_workers = static_cast<int64_t>(workers.size());
  result.repeated = true;
  const absl::Time start = absl::Now();
  const int64_t pushed_before = stats_.bytes_pushed;
  std::vector<BehindWorker> behind;
  MR_RETURN_IF_ERROR(Push(workers, {}, {}, &behind));
  CountSync(true);
  result.num_behind = static_cast<int64_t>(behind.size());
  result.seconds_push = SecondsSince(start);
  result.version = stats_.version;
  result.bytes = stats_.bytes_pushed - pushed_before;
  return result;
}

absl::StatusOr<SyncResult> ParameterServer::Sync(
    const std::vector<AnyActorHandle>& workers, const std::string& sync_id) {
  MR_RETURN_IF_ERROR(CheckWorkers(workers));
  SyncResult result;
  result.num_workers = static_cast<int64_t>(workers.size());
  if (options_.min_workers > result.num_workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_workers is ", options_.min_workers,
                     ", but there are ", result.num_workers, " workers"));
  }
  MR_RETURN_IF_ERROR(strategy_->CheckWorkers(result.num_workers));
  if (sharded_ != nullptr) return sharded_->Sync(workers, sync_id);
  MR_RETURN_IF_ERROR(CheckWeightsInMean(workers));
  if (strategy_->TakesGradients()) {
    MR_RETURN_IF_ERROR(CheckPullsGradients(options_));
  }
  MR_ASSIGN_OR_RETURN(const std::optional<SyncResult> in_pieces,
                      SyncInPieces(workers, sync_id));
  if (in_pieces.has_value()) return *in_pieces;

  absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(PulledWeights pulled,
                      Pull(workers, gradients_ != nullptr ? Pulled::kGradients
                                                          : Pulled::kWeights));
  for (const LeftOut& worker : pulled.left_out) Warn(worker.status);
  SetWeightsInMean(&pulled.contributions);
  for (const LeftOut& worker : pulled.left_out) {
    ++(worker.refused ? result.num_refused : result.num_lost);
  }
  result.seconds_pull = SecondsSince(start);
  stats_.contributions_refused += result.num_refused;
  stats_.contributions_lost += result.num_lost;
  stats_.bytes_pulled += pulled.bytes;
  stats_.bytes_saved_pull += pulled.bytes_saved;
  stats_.seconds_pull += result.seconds_pull;

  start = absl::Now();
  NamedTensors aggregated;
  StrategyState remembered;  // To go back to if this cannot be saved.
  if (gradients_ == nullptr) {
    if (sync_id.empty() && !options_.state_dir.empty() &&
        unsaved_ + 1 >= options_.save_every) {
      MR_ASSIGN_OR_RETURN(remembered, CopyOfState(*strategy_));
    }
    if (!options_.keep_weights &&
        MayAggregate(*strategy_, pulled.contributions)) {
      // Their memory is the next ones', unless a worker still reads it.
      weights_.clear();
      last_sync_.clear();
    }
    MR_ASSIGN_OR_RETURN(aggregated, Aggregate(pulled.contributions, workers));
  }
  std::vector<int64_t> contributors;
  for (const Contribution& contribution : pulled.contributions) {
    contributors.push_back(contribution.worker_id);
  }
  const auto num_accepted = static_cast<int64_t>(contributors.size());
  if (gradients_ == nullptr) {
    pulled.contributions.clear();  // What follows needs memory too.
    MR_RETURN_IF_ERROR(ReplaceInSync(
        std::move(aggregated), sync_id, std::move(contributors), "", [&] {
          return weights_.empty()
                     ? ResetStrategy(*strategy_, {})
                     : RestoreStrategy(*strategy_, remembered, weights_);
        }));
  } else {
    CountNewSync();
    const absl::Status stepped = gradients_->StepTogether(
        std::move(pulled.contributions), *pulled.completed_from, sync_id,
        stats_.num_syncs, NamesOf(workers));
    if (!stepped.ok()) {
      CountSync(false);
      return stepped;
    }
  }
  auto not_counted = absl::MakeCleanup([this] { CountSync(false); });
  stats_.contributions_accepted += num_accepted;
  result.seconds_aggregate = SecondsSince(start);
  stats_.seconds_aggregate += result.seconds_aggregate;

  start = absl::Now();
  const int64_t pushed_before = stats_.bytes_pushed;
  const int64_t saved_before = stats_.bytes_saved_push;
  std::vector<BehindWorker> behind;
  MR_RETURN_IF_ERROR(
      Push(workers, pulled.left_out, pulled.holds_view, &behind));
  std::move(not_counted).Cancel();
  result.num_behind = static_cast<int64_t>(behind.size());
  result.seconds_push = SecondsSince(start);
  result.version = stats_.version;
  result.bytes = pulled.bytes + stats_.bytes_pushed - pushed_before;
  result.bytes_saved =
      pulled.bytes_saved + stats_.bytes_saved_push - saved_before;
  return result;
}

PullRequest ParameterServer::RequestOf(
    const std::vector<AnyActorHandle>& workers, Pulled what) const {
  return {
      .workers = workers,
      .wants_samples = strategy_->UsesWorkerWeights(),
      .wants_buffers = what != Pulled::kGradients && !buffer_names_.has_value(),
      .check_finite = options_.non_finite == NonFinitePolicy::kDropWorker ||
                      (options_.non_finite == NonFinitePolicy::kRefuse &&
                       !strategy_->PassesOnNonFinite()),
      .drop_non_finite = options_.non_finite == NonFinitePolicy::kDropWorker,
      // Who asks for fewer workers, for a start say, waits for all of these.
      .min_workers =
          std::min(options_.min_workers, static_cast<int64_t>(workers.size())),
      .deadline = Deadline(),
      .layout = layout_.has_value() ? &*layout_ : nullptr,
      .weights = &weights_,
      // Whoever brings the start may have been restarted.
      .taken = what == Pulled::kWeightsInFull ? nullptr : &taken_};
}

absl::StatusOr<PulledWeights> ParameterServer::Pull(
    const std::vector<AnyActorHandle>& workers, Pulled what) {
  if (gradients_ != nullptr) FollowGradients();
  // Nobody has weights of no id.
  const WeightView no_view(
      WeightView::Options{.part = role_.shard, .num_parts = role_.num_shards});
  PullRequest request = RequestOf(workers, what);
  if (view_.has_value()) {
    request.view = what == Pulled::kWeightsInFull ? &no_view : &*view_;
  }
  std::shared_ptr<const ModelSnapshot> model;
  if (what == Pulled::kGradients) {
    MR_RETURN_IF_ERROR(gradients_->Pull().status());
    model = gradients_->Snapshot();
    request.gradients = [&model](absl::string_view who, NamedTensors* tensors) {
      return GradientModel::CheckAndComplete(*model, who, tensors);
    };
  }
  MR_ASSIGN_OR_RETURN(PulledWeights pulled, PullWeightsOf(request));
  pulled.completed_from = std::move(model);
  if (pulled.buffer_names.has_value()) {
    MR_RETURN_IF_ERROR(
        Annotate(SetBufferNames(pulled.contributions.front().tensors,
                                *std::move(pulled.buffer_names)),
                 WorkerName(0, workers.front())));
  }
  if (IsShard()) {
    UpdateInfo(pulled.contributions.front().tensors, pulled.places);
  }
  for (Contribution& contribution : pulled.contributions) {
    contribution.info = info_;
  }
  return pulled;
}

absl::Status ParameterServer::SetBufferNames(const NamedTensors& model,
                                             std::vector<std::string> names) {
  // A shard knows only some of them, and UpdateInfo picks those.
  if (!IsShard()) {
    MR_ASSIGN_OR_RETURN(info_, MakeInfo(model, names));
  }
  buffer_names_ = std::move(names);
  return absl::OkStatus();
}

absl::Status ParameterServer::CheckWeightsInMean(
    const std::vector<AnyActorHandle>& workers) const {
  return strategy_->UsesWorkerWeights() && worker_weights_.empty()
             ? CheckSamples(workers, stats_.strategy)
             : absl::OkStatus();
}

void ParameterServer::SetWeightsInMean(
    std::vector<Contribution>* contributions) const {
  for (Contribution& contribution : *contributions) {
    auto weight = worker_weights_.find(contribution.worker_id);
    if (weight != worker_weights_.end()) {
      contribution.weight = weight->second;
    } else if (worker_weights_.empty()) {
      contribution.weight = contribution.num_samples.value_or(1);
    }
  }
}

std::vector<TensorInfo> ParameterServer::InfoOfModel(
    const NamedTensors& weights) const {
  return InfoOf({.tensors = weights, .info = info_});
}

absl::StatusOr<NamedTensors> ParameterServer::Aggregate(
    const std::vector<Contribution>& contributions,
    const std::vector<AnyActorHandle>& workers) {
  return RunStrategy(
      *strategy_, stats_.strategy, weights_, contributions,
      [&] { return strategy_->Aggregate(contributions); }, NamesOf(workers));
}

}  // namespace miniray::ps
