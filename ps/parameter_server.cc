#include "ps/parameter_server.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/await_calls.h"
#include "ps/gradient_methods.h"
#include "ps/piecewise_strategy.h"
#include "ps/run_strategy.h"
#include "ps/shard_methods.h"
#include "ps/tensor_info.h"
#include "ps/tensor_math.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

// Of SyncStats::warnings.
constexpr size_t kMaxWarnings = 20;

// INVALID_ARGUMENT if the strategy needs the weights that the options let go.
absl::Status CheckKeeping(absl::string_view name, const SyncStrategy& strategy,
                          const ServerOptions& options) {
  if (options.keep_weights || !strategy.UsesServerWeights()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("strategy '", name,
                   "' works with the server's weights, too: leave "
                   "keep_weights at true"));
}

std::unique_ptr<SyncStrategy> MakeStrategy(
    const std::string& name, const StrategyOptions& options,
    const ServerOptions& server_options) {
  absl::StatusOr<std::unique_ptr<SyncStrategy>> strategy =
      StrategyRegistry::Get().Create(name, options);
  absl::Status made = strategy.status();
  made.Update(Validate(server_options));
  if (made.ok()) made = CheckPieces(name, **strategy, server_options);
  if (made.ok()) made = CheckKeeping(name, **strategy, server_options);
  if (!made.ok()) throw std::invalid_argument(std::string(made.message()));
  if (server_options.piece_bytes == 0) return *std::move(strategy);
  return std::make_unique<PiecewiseStrategy>(
      [name, options] {
        return *StrategyRegistry::Get().Create(name, options);
      },
      server_options.piece_bytes);
}

// Of a shard's tensors those that do not begin in another.
int64_t NumBeginningIn(const std::vector<TensorPart>& places) {
  return std::count_if(
      places.begin(), places.end(),
      [](const TensorPart& place) { return place.begin == 0; });
}

}  // namespace

ParameterServer::ParameterServer(const std::string& strategy,
                                 const StrategyOptions& options,
                                 ServerOptions server_options, ShardRole role)
    : strategy_(MakeStrategy(strategy, options, server_options)),
      pieces_(dynamic_cast<PiecewiseStrategy*>(strategy_.get())),
      strategy_id_(
          {.name = strategy,
           .options = *StrategyRegistry::Get().Complete(strategy, options),
           .text = StrategyRegistry::Get().Describe(strategy, options)}),
      options_(std::move(server_options)),
      role_(std::move(role)) {
  stats_.strategy = strategy_id_.text;
  if (strategy_->TakesGradients() && !role_.shards.empty()) {
    sharded_gradients_ = std::make_unique<ShardedGradients>(role_.shards);
    return;  // The shards keep the state.
  }
  if (strategy_->TakesGradients()) {
    gradients_ = std::make_unique<GradientServer>(
        dynamic_cast<GradientStrategy*>(strategy_.get()), strategy_id_,
        options_);
  } else if (!role_.shards.empty()) {
    sharded_ = std::make_unique<ShardedServer>(strategy_.get(), &options_,
                                               role_.shards);
    return;  // The shards keep the state.
  } else if (NeedsExchange(options_)) {
    MakeView();
  }
  if (!options_.state_dir.empty()) Restore();
}

void ParameterServer::MakeView() {
  view_.emplace(WeightView::Options{.from_workers = options_.from_workers,
                                    .to_workers = options_.to_workers,
                                    .part = role_.shard,
                                    .num_parts = role_.num_shards});
}

absl::Time ParameterServer::Deadline() const {
  return options_.sync_timeout_seconds > 0
             ? absl::Now() + absl::Seconds(options_.sync_timeout_seconds)
             : absl::InfiniteFuture();
}

void ParameterServer::Warn(const absl::Status& status) {
  LOG(WARNING) << "left out of a synchronisation: " << status.message();
  if (stats_.warnings.size() >= kMaxWarnings) {
    stats_.warnings.erase(stats_.warnings.begin());
  }
  stats_.warnings.emplace_back(status.message());
}

absl::Status ParameterServer::Replace(NamedTensors weights,
                                      const std::string& sync_id,
                                      std::vector<int64_t> contributors,
                                      const std::string& id) {
  if (view_.has_value()) {
    const std::vector<TensorInfo> info = InfoOfModel(weights);
    const std::string new_id = id.empty() ? NewId("weights") : id;
    if (contributors.empty()) {
      view_->Replace(weights, info, new_id);
    } else {
      view_->Follow(weights, info, std::move(contributors), new_id);
    }
  }
  Adopt(std::move(weights));
  ++stats_.version;
  last_sync_ = sync_id;
  if (IsShard() && !options_.state_dir.empty()) {
    return SaveTo(PreparedFolder(options_.state_dir));
  }
  if (options_.state_dir.empty() || ++unsaved_ < options_.save_every) {
    return absl::OkStatus();
  }
  return Save();
}

ParameterServer::Before ParameterServer::Now(const std::string& next_id) const {
  return {.next_id = next_id,
          .weights = weights_,
          .view = view_,
          .layout = layout_,
          .version = stats_.version,
          .num_syncs = stats_.num_syncs,
          .last_sync = last_sync_,
          .sync_counted = sync_counted_,
          .unsaved = unsaved_,
          .worker_weights = worker_weights_};
}

void ParameterServer::ReturnTo(Before before) {
  weights_ = std::move(before.weights);
  view_ = std::move(before.view);
  layout_ = std::move(before.layout);
  stats_.version = before.version;
  stats_.num_syncs = before.num_syncs;
  last_sync_ = std::move(before.last_sync);
  sync_counted_ = before.sync_counted;
  unsaved_ = before.unsaved;
  worker_weights_ = std::move(before.worker_weights);
}

absl::Status ParameterServer::ReplaceInSync(
    NamedTensors weights, const std::string& sync_id,
    std::vector<int64_t> contributors, const std::string& id,
    absl::FunctionRef<absl::Status()> undo) {
  std::optional<Before> before;
  if (sync_id.empty() && !options_.state_dir.empty()) before = Now("");
  CountNewSync();
  const absl::Status saved =
      Replace(std::move(weights), sync_id, std::move(contributors), id);
  if (saved.ok()) return saved;
  if (!before.has_value()) {
    CountSync(false);
    return saved;
  }
  ReturnTo(*std::move(before));
  absl::Status undone = undo();
  if (!undone.ok()) {
    LOG(ERROR) << "the strategy starts anew: " << undone;
    undone = ResetStrategy(*strategy_, weights_);
    LOG_IF(ERROR, !undone.ok()) << "nor does it start anew: " << undone;
  }
  return saved;
}

void ParameterServer::CountNewSync() {
  sync_counted_ = false;
  CountSync(true);
}

void ParameterServer::CountSync(bool reached_all) {
  if (std::exchange(sync_counted_, reached_all) == reached_all) return;
  stats_.num_syncs += reached_all ? 1 : -1;
}

void ParameterServer::Adopt(NamedTensors weights) {
  if (!layout_.has_value()) layout_ = ModelLayout::Of(weights);
  weights_ = std::move(weights);
}

absl::StatusOr<NamedTensors> ParameterServer::PullWeights() const {
  if (sharded_ != nullptr) return sharded_->PullWeights();
  if (sharded_gradients_ != nullptr) return sharded_gradients_->Pull();
  if (gradients_ != nullptr) {
    MR_ASSIGN_OR_RETURN(PullReply pulled, gradients_->Pull());
    return std::move(pulled.model.weights.value);
  }
  if (weights_.empty() && stats_.version > 0 && !options_.keep_weights) {
    return absl::FailedPreconditionError(
        "the parameter server has no weights: a synchronisation has failed, "
        "and it does not keep the old ones meanwhile (keep_weights = false); "
        "StartFromWorkers or PushWeights gives it some, and so does the next "
        "synchronisation that succeeds");
  }
  if (weights_.empty()) {
    return absl::FailedPreconditionError(
        "the parameter server has no weights yet; call SyncFromWorkers or "
        "PushWeights first");
  }
  return weights_;
}

absl::StatusOr<int64_t> ParameterServer::PushWeights(NamedTensors weights) {
  if (sharded_gradients_ != nullptr) {
    return sharded_gradients_->Start(weights, std::nullopt);
  }
  if (gradients_ != nullptr) {
    return gradients_->Start(std::move(weights), std::nullopt);
  }
  MR_RETURN_IF_ERROR(CheckValues(weights, "PushWeights"));
  if (sharded_ != nullptr) return sharded_->PushWeights(weights);
  if (layout_.has_value()) {
    MR_RETURN_IF_ERROR(
        CheckLayout(weights, *layout_, "PushWeights", "the parameter server"));
  }
  MR_RETURN_IF_ERROR(ResetStrategy(*strategy_, weights));
  MR_RETURN_IF_ERROR(Replace(std::move(weights), ""));
  return stats_.version;
}

absl::StatusOr<int64_t> ParameterServer::StartFromWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckWorkers(workers));
  if (sharded_ != nullptr) return sharded_->StartFromWorkers(workers);
  MR_ASSIGN_OR_RETURN(const PulledWeights first,
                      Pull({workers.front()}, Pulled::kWeightsInFull));
  MR_RETURN_IF_ERROR(CheckFinite(first.contributions.front().tensors,
                                 WorkerName(0, workers.front())));
  // A copy: these are lent.
  NamedTensors weights = MeanOfModels(first.contributions);
  if (sharded_gradients_ != nullptr) {
    MR_ASSIGN_OR_RETURN(const int64_t version,
                        sharded_gradients_->Start(weights, buffer_names_));
    MR_RETURN_IF_ERROR(PushOfShards(workers));
    return version;
  }
  if (gradients_ != nullptr) {
    MR_RETURN_IF_ERROR(
        gradients_->Start(std::move(weights), buffer_names_).status());
  } else {
    MR_RETURN_IF_ERROR(ResetStrategy(*strategy_, weights));
    MR_RETURN_IF_ERROR(Replace(std::move(weights), ""));
  }
  MR_RETURN_IF_ERROR(Push(workers));
  return stats_.version;
}

absl::Status ParameterServer::PushToWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckWorkers(workers));
  if (sharded_ != nullptr) return sharded_->PushToWorkers(workers);
  if (sharded_gradients_ != nullptr) return PushOfShards(workers);
  MR_RETURN_IF_ERROR(PullWeights().status());
  return Push(workers);
}

absl::Status ParameterServer::SetWorkerWeight(int worker_id, double weight) {
  MR_RETURN_IF_ERROR(CheckWorkerWeight(worker_id, weight));
  MR_RETURN_IF_ERROR(CheckWeighs());
  if (sharded_ != nullptr) return sharded_->SetWorkerWeight(worker_id, weight);
  worker_weights_[worker_id] = weight;
  return options_.state_dir.empty() ? absl::OkStatus() : Save();
}

absl::Status ParameterServer::SetWorkerWeights(
    const std::map<int, double>& weights) {
  for (const auto& [worker_id, weight] : weights) {
    MR_RETURN_IF_ERROR(CheckWorkerWeight(worker_id, weight));
  }
  MR_RETURN_IF_ERROR(CheckWeighs());
  if (sharded_ != nullptr) return sharded_->SetWorkerWeights(weights);
  worker_weights_ = weights;
  return options_.state_dir.empty() ? absl::OkStatus() : Save();
}

absl::Status ParameterServer::CheckWeighs() const {
  if (strategy_->UsesWorkerWeights()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("strategy ", stats_.strategy,
                   " has no use for the weights of workers; 'weighted' has"));
}

absl::StatusOr<SyncStats> ParameterServer::GetStats() const {
  if (sharded_ != nullptr) return sharded_->GetStats();
  if (sharded_gradients_ != nullptr) return sharded_gradients_->GetStats();
  SyncStats stats = stats_;
  stats.initialized = !weights_.empty();
  stats.num_tensors = static_cast<int64_t>(weights_.size());
  if (gradients_ == nullptr) {
    if (IsShard()) stats.num_tensors = NumBeginningIn(view_->places());
    return stats;
  }
  const std::shared_ptr<const ModelSnapshot> model = gradients_->Snapshot();
  stats.initialized = !model->empty();
  stats.num_tensors = IsShard() ? NumBeginningIn(model->places)
                                : static_cast<int64_t>(model->weights.size());
  stats.version = model->version;
  stats.num_saves = gradients_->num_saves();
  stats.gradients = gradients_->GetStats();
  for (std::string& warning : gradients_->Warnings()) {
    stats.warnings.push_back(std::move(warning));
  }
  return stats;
}

absl::Status CheckWorkerWeight(int worker_id, double weight) {
  if (worker_id < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker_id must be 0 or more, got ", worker_id));
  }
  if (!std::isfinite(weight) || weight < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weight of worker ", worker_id,
                     " must be finite and not negative, got ", weight));
  }
  return absl::OkStatus();
}

absl::StatusOr<ActorHandle<ParameterServer>> CreateParameterServer(
    const Cluster& cluster, absl::string_view strategy,
    const StrategyOptions& options, const ServerOptions& server_options,
    const ActorOptions& actor_options, std::vector<AnyActorHandle>* shards) {
  if (shards != nullptr) shards->clear();
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<SyncStrategy> made,
                      StrategyRegistry::Get().Create(strategy, options));
  MR_RETURN_IF_ERROR(Validate(server_options));
  MR_RETURN_IF_ERROR(
      CheckGradientOptions(strategy, made->TakesGradients(), server_options));
  MR_RETURN_IF_ERROR(CheckPieces(strategy, *made, server_options));
  MR_RETURN_IF_ERROR(CheckKeeping(strategy, *made, server_options));
  ActorOptions actor = actor_options;
  if (!server_options.state_dir.empty() && actor.max_restarts == 0) {
    actor.max_restarts = -1;
  }
  if (made->TakesGradients()) AddGradientThreads(server_options, &actor);
  if (server_options.num_shards > 1) {
    return CreateShardedServer(cluster, std::string(strategy), options,
                               server_options, actor, shards);
  }
  return cluster.CreateActor<ParameterServer>(
      actor, std::string(strategy), options, server_options, ShardRole());
}

}  // namespace miniray::ps
