#include "ps/parameter_server.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/await_calls.h"
#include "ps/encoded_weights.h"
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

constexpr absl::Duration kReminderPeriod = absl::Seconds(30);

// Of SyncStats::warnings.
constexpr size_t kMaxWarnings = 20;

double SecondsSince(absl::Time start) {
  return absl::ToDoubleSeconds(absl::Now() - start);
}

constexpr char kWhyExchange[] =
    "compressed weights, weights in pieces, or several shards "
    "(ServerOptions)";

// Weights as they are sent to workers.
struct Outgoing {
  EncodedWeights encoded;
  int64_t bytes = 0;  // Of tensors.

  template <class T>
  static absl::StatusOr<Outgoing> Of(const T& message,
                                     const NamedTensors& tensors) {
    MR_ASSIGN_OR_RETURN(EncodedWeights encoded, EncodedWeights::Of(message));
    return Outgoing{std::move(encoded), TotalBytes(tensors)};
  }
};

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

std::unique_ptr<SyncStrategy> MakeStrategy(
    const std::string& name, const StrategyOptions& options,
    const ServerOptions& server_options) {
  absl::StatusOr<std::unique_ptr<SyncStrategy>> strategy =
      StrategyRegistry::Get().Create(name, options);
  absl::Status made = strategy.status();
  made.Update(Validate(server_options));
  if (made.ok()) made = CheckPieces(name, **strategy, server_options);
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
      options_(std::move(server_options)),
      role_(std::move(role)) {
  stats_.strategy = options.values().empty()
                        ? strategy
                        : absl::StrCat(strategy, " (", options.ToString(), ")");
  if (strategy_->TakesGradients() && !role_.shards.empty()) {
    sharded_gradients_ = std::make_unique<ShardedGradients>(role_.shards);
    return;  // The shards keep the state.
  }
  if (strategy_->TakesGradients()) {
    gradients_ = std::make_unique<GradientServer>(
        dynamic_cast<GradientStrategy*>(strategy_.get()), stats_.strategy,
        options_);
  } else if (!role_.shards.empty()) {
    sharded_ = std::make_unique<ShardedServer>(strategy_.get(), &options_,
                                               role_.shards);
    return;  // The shards keep the state.
  } else if (NeedsExchange(options_)) {
    view_.emplace(WeightView::Options{.from_workers = options_.from_workers,
                                      .to_workers = options_.to_workers,
                                      .part = role_.shard,
                                      .num_parts = role_.num_shards});
  }
  if (!options_.state_dir.empty()) Restore();
}

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
  return Sync(workers, "");
}

absl::StatusOr<SyncResult> ParameterServer::SyncOnce(
    const std::vector<AnyActorHandle>& workers, const std::string& sync_id) {
  if (sync_id.empty()) {
    return absl::InvalidArgumentError("a synchronisation's id cannot be empty");
  }
  if (sharded_ != nullptr || sync_id != last_sync_) {
    return Sync(workers, sync_id);
  }
  MR_RETURN_IF_ERROR(CheckWorkers(workers));
  if (gradients_ != nullptr) MR_RETURN_IF_ERROR(gradients_->SaveIfFailed());
  // The disk may have been full.
  if (unsaved_ >= options_.save_every) MR_RETURN_IF_ERROR(Save());
  SyncResult result;
  result.num_workers = static_cast<int64_t>(workers.size());
  result.repeated = true;
  const absl::Time start = absl::Now();
  const int64_t pushed_before = stats_.bytes_pushed;
  MR_RETURN_IF_ERROR(Push(workers));
  CountSync(true);
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
  if (gradients_ == nullptr) {
    MR_ASSIGN_OR_RETURN(aggregated, Aggregate(pulled.contributions, workers));
  }
  std::vector<int64_t> contributors;
  for (const Contribution& contribution : pulled.contributions) {
    contributors.push_back(contribution.worker_id);
  }
  const auto num_accepted = static_cast<int64_t>(contributors.size());
  // Counted already in what is saved: a server that is killed after that, and
  // has its push repeated, has done it.
  sync_counted_ = false;
  CountSync(true);
  auto not_counted = absl::MakeCleanup([this] { CountSync(false); });
  if (gradients_ == nullptr) {
    pulled.contributions.clear();  // What follows needs memory too.
    MR_RETURN_IF_ERROR(
        Replace(std::move(aggregated), sync_id, std::move(contributors)));
  } else {
    MR_RETURN_IF_ERROR(gradients_->StepTogether(std::move(pulled.contributions),
                                                sync_id, stats_.num_syncs,
                                                NamesOf(workers)));
    last_sync_ = sync_id;
  }
  stats_.contributions_accepted += num_accepted;
  result.seconds_aggregate = SecondsSince(start);
  stats_.seconds_aggregate += result.seconds_aggregate;

  start = absl::Now();
  const int64_t pushed_before = stats_.bytes_pushed;
  const int64_t saved_before = stats_.bytes_saved_push;
  MR_RETURN_IF_ERROR(Push(workers, pulled.left_out, pulled.holds_view));
  std::move(not_counted).Cancel();
  result.seconds_push = SecondsSince(start);
  result.version = stats_.version;
  result.bytes = pulled.bytes + stats_.bytes_pushed - pushed_before;
  result.bytes_saved =
      pulled.bytes_saved + stats_.bytes_saved_push - saved_before;
  return result;
}

absl::Time ParameterServer::Deadline() const {
  return options_.sync_timeout_seconds > 0
             ? absl::Now() + absl::Seconds(options_.sync_timeout_seconds)
             : absl::InfiniteFuture();
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
      .min_workers = options_.min_workers,
      .deadline = Deadline(),
      .layout = layout_.has_value() ? &*layout_ : nullptr,
      .weights = &weights_};
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
  if (what == Pulled::kGradients) {
    MR_RETURN_IF_ERROR(gradients_->Pull().status());
    request.gradients = [model = gradients_->Snapshot()](
                            absl::string_view who, NamedTensors* tensors) {
      return GradientModel::CheckAndComplete(*model, who, tensors);
    };
  }
  MR_ASSIGN_OR_RETURN(PulledWeights pulled, PullWeightsOf(request));
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

void ParameterServer::Warn(const absl::Status& status) {
  LOG(WARNING) << "left out of a synchronisation: " << status.message();
  if (stats_.warnings.size() >= kMaxWarnings) {
    stats_.warnings.erase(stats_.warnings.begin());
  }
  stats_.warnings.emplace_back(status.message());
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

void ParameterServer::SetWeightsInMean(
    std::vector<Contribution>* contributions) const {
  const bool all_tell = std::all_of(
      contributions->begin(), contributions->end(),
      [](const Contribution& c) { return c.num_samples.has_value(); });
  for (Contribution& contribution : *contributions) {
    auto weight = worker_weights_.find(contribution.worker_id);
    if (weight != worker_weights_.end()) {
      contribution.weight = weight->second;
    } else if (worker_weights_.empty() && all_tell) {
      contribution.weight = *contribution.num_samples;
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

absl::Status ParameterServer::Push(const std::vector<AnyActorHandle>& workers,
                                   const std::vector<LeftOut>& left_out,
                                   const std::vector<bool>& holds_view) {
  if (gradients_ != nullptr) FollowGradients();
  const absl::Time start = absl::Now();
  // For workers that hold nothing, and for those that hold the view.
  std::optional<Outgoing> outgoing[2];
  if (view_.has_value()) {
    MR_ASSIGN_OR_RETURN(outgoing[false],
                        Outgoing::Of(view_->full(), view_->tensors()));
  } else {
    MR_ASSIGN_OR_RETURN(outgoing[false], Outgoing::Of(weights_, weights_));
  }
  if (view_.has_value() && view_->difference().has_value() &&
      std::count(holds_view.begin(), holds_view.end(), true) > 0) {
    const WeightMessage& difference = *view_->difference();
    MR_ASSIGN_OR_RETURN(outgoing[true],
                        Outgoing::Of(difference, difference.tensors));
  }
  const std::string method =
      view_.has_value() ? "ReceiveWeights" : "SetWeights";
  const auto outgoing_to = [&](size_t i) -> const Outgoing& {
    const bool holds = i < holds_view.size() && holds_view[i];
    return *outgoing[holds && outgoing[true].has_value()];
  };
  std::erase_if(late_pushes_,
                [](const auto& late) { return late.second.ready(); });
  std::vector<bool> awaited(workers.size(), true);
  for (const LeftOut& worker : left_out) {
    awaited[worker.worker] = worker.refused;
  }
  std::vector<ObjectRef<void>> refs(workers.size());
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls(
      workers.size());
  for (size_t i = 0; i < workers.size(); ++i) {
    ObjectRef<void>& late = late_pushes_[workers[i].actor_id()];
    Cancel(late);
    if (!awaited[i]) {
      // Who comes back from where it was gets the weights then, and only the
      // last.
      late = workers[i].CallByNameWith<void>({.max_retries = -1}, method,
                                             outgoing[false]->encoded);
      continue;
    }
    late_pushes_.erase(workers[i].actor_id());
    refs[i] = workers[i].CallByName<void>(method, outgoing_to(i).encoded);
    calls[i] = refs[i].state();
  }
  const absl::Time deadline = Deadline();
  const int64_t uncompressed = TotalBytes(weights_);
  // All are waited for, so that a caller who goes on despite an error meets
  // workers that are done with the push.
  std::vector<absl::Status> pushed(
      workers.size(),
      absl::DeadlineExceededError("has not taken the new weights in time"));
  MR_RETURN_IF_ERROR(AwaitCalls(
      calls, workers, "push of weights", kReminderPeriod,
      [&](size_t i) {
        if (!awaited[i]) return absl::OkStatus();
        pushed[i] = refs[i].Get();
        if (!pushed[i].ok()) return absl::OkStatus();
        const int64_t bytes = outgoing_to(i).bytes;
        stats_.bytes_pushed += bytes;
        stats_.bytes_saved_push += uncompressed - bytes;
        return absl::OkStatus();
      },
      deadline));
  stats_.seconds_push += SecondsSince(start);
  return Judge(workers, awaited, pushed, std::move(refs));
}

absl::Status ParameterServer::Judge(const std::vector<AnyActorHandle>& workers,
                                    const std::vector<bool>& awaited,
                                    const std::vector<absl::Status>& pushed,
                                    std::vector<ObjectRef<void>> calls) {
  absl::Status first_error;
  int64_t good = 0;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!awaited[i]) continue;
    if (pushed[i].ok()) {
      ++good;
      continue;
    }
    const absl::Status error = Annotate(pushed[i], WorkerName(i, workers[i]));
    first_error.Update(error);
    if (options_.min_workers == 0) continue;
    Warn(error);
    if (absl::IsDeadlineExceeded(pushed[i])) {
      late_pushes_[workers[i].actor_id()] = std::move(calls[i]);
    }
  }
  if (options_.min_workers > 0 && good >= options_.min_workers) {
    return absl::OkStatus();
  }
  return first_error;
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
    last_sync_.clear();
    return gradients_->Start(std::move(weights), std::nullopt);
  }
  MR_RETURN_IF_ERROR(CheckValues(weights, "PushWeights"));
  if (sharded_ != nullptr) return sharded_->PushWeights(weights);
  if (layout_.has_value()) {
    MR_RETURN_IF_ERROR(
        CheckLayout(weights, *layout_, "PushWeights", "the parameter server"));
  }
  strategy_->Reset(weights);
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
    last_sync_.clear();
  } else {
    strategy_->Reset(weights);
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
  if (!strategy_->UsesWorkerWeights()) {
    return absl::FailedPreconditionError(
        absl::StrCat("strategy ", stats_.strategy,
                     " has no use for the weights of workers; 'weighted' has"));
  }
  if (sharded_ != nullptr) return sharded_->SetWorkerWeight(worker_id, weight);
  worker_weights_[worker_id] = weight;
  return options_.state_dir.empty() ? absl::OkStatus() : Save();
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
