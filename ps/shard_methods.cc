// The methods of ParameterServer that it has as a shard, and the making of
// servers with several.

#include "ps/shard_methods.h"

#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "proto/head.pb.h"
#include "ps/await_calls.h"
#include "ps/parameter_server.h"
#include "ps/run_strategy.h"
#include "ps/server_state.h"
#include "ps/tensor_info.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

namespace fs = std::filesystem;

constexpr char kShardPrefix[] = "shard-";

// How long a server may take to tell its shards when it is stopped.
constexpr absl::Duration kStopTimeout = absl::Seconds(5);
// How long one that answers may write its state.
constexpr absl::Duration kSaveTimeout = absl::Minutes(1);

absl::Status HasRestarted() {
  return absl::UnavailableError(
      "the shard has restarted and knows nothing of this synchronisation");
}

std::string ShardFolder(const std::string& state_dir, int64_t shard,
                        int64_t num_shards) {
  return absl::StrCat(state_dir, "/", kShardPrefix, shard, "-of-", num_shards);
}

// Takes the contributions of the workers left out away.
void Drop(const std::vector<LeftOutWorker>& left_out,
          std::vector<Contribution>* contributions) {
  std::set<int64_t> out;
  for (const LeftOutWorker& worker : left_out) out.insert(worker.worker);
  std::erase_if(*contributions, [&](const Contribution& contribution) {
    return out.contains(contribution.worker_id);
  });
}

// Of the nodes that are alive.
absl::StatusOr<std::vector<std::string>> NodeIds(const Cluster& cluster) {
  MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                      cluster.GetState());
  std::vector<std::string> ids;
  for (const v1::NodeInfo& node : state.nodes()) {
    if (node.state() == v1::NODE_STATE_ALIVE) ids.push_back(node.node_id());
  }
  return ids;
}

}  // namespace

std::string PreparedFolder(const std::string& state_dir) {
  return state_dir + "/prepared";
}

// Another number of shards, or none: then the folder's state is of no use, and
// to begin anew would be to forget it.
void ParameterServer::CheckFolderIsOfThisCut() const {
  const bool is_shard = IsShard();
  const fs::path folder = is_shard ? fs::path(options_.state_dir).parent_path()
                                   : fs::path(options_.state_dir);
  const std::string own_end = absl::StrCat("-of-", role_.num_shards);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    const bool of_shard = absl::StartsWith(name, kShardPrefix);
    if (is_shard ? name != kServerStateFile &&
                       (!of_shard || absl::EndsWith(name, own_end))
                 : !of_shard) {
      continue;
    }
    throw std::runtime_error(absl::StrCat(
        folder.string(), " has the state of a server with another number of ",
        "shards (", name, "), and this one has ", role_.num_shards,
        "; use another folder, or empty it"));
  }
}

void ParameterServer::UpdateInfo(const NamedTensors& part,
                                 const std::vector<TensorPart>& places) {
  const std::vector<std::string> names =
      buffer_names_.value_or(std::vector<std::string>());
  const std::set<std::string> buffers(names.begin(), names.end());
  auto info = std::make_shared<std::vector<TensorInfo>>();
  for (size_t i = 0; i < part.size(); ++i) {
    const std::string& name = part[i].first;
    info->push_back({.is_buffer = buffer_names_.has_value()
                                      ? buffers.contains(name)
                                      : IsBufferName(name),
                     .offset = places[i].begin});
  }
  info_ = std::move(info);
}

PartState ParameterServer::GetPartState() const {
  if (gradients_ != nullptr) {
    return {.version = gradients_->Snapshot()->version};
  }
  if (before_.has_value()) {
    return {.version = before_->version,
            .id = before_->view->id(),
            .prepared = before_->next_id,
            .last_sync = before_->last_sync};
  }
  return {.version = stats_.version,
          .id = view_->id(),
          .prepared = prepared_,
          .last_sync = last_sync_};
}

PulledPart ParameterServer::PullPart(const std::vector<AnyActorHandle>& workers,
                                     const std::string& id) {
  const absl::Time start = absl::Now();
  attempt_.reset();
  const absl::Status weighs = CheckWeightsInMean(workers);
  if (!weighs.ok()) return {.outcome = Outcome::Of(weighs)};
  absl::StatusOr<PulledWeights> pulled = Pull(workers, Pulled::kWeights);
  if (!pulled.ok()) return {.outcome = Outcome::Of(pulled.status())};
  PulledPart part = {.bytes = pulled->bytes,
                     .bytes_saved = pulled->bytes_saved};
  for (const LeftOut& worker : pulled->left_out) {
    part.left_out.push_back({.worker = static_cast<int64_t>(worker.worker),
                             .why = Outcome::Of(worker.status),
                             .refused = worker.refused});
  }
  for (size_t i = 0; i < pulled->holds_view.size(); ++i) {
    if (pulled->holds_view[i]) {
      part.holds_view.push_back(static_cast<int64_t>(i));
    }
  }
  stats_.bytes_pulled += part.bytes;
  stats_.bytes_saved_pull += part.bytes_saved;
  stats_.seconds_pull += absl::ToDoubleSeconds(absl::Now() - start);
  attempt_ = Attempt{.id = id, .pulled = *std::move(pulled)};
  return part;
}

absl::StatusOr<std::vector<WideSum>> ParameterServer::SumPart(
    const std::string& id, const std::vector<LeftOutWorker>& left_out) {
  if (!attempt_.has_value() || attempt_->id != id) return HasRestarted();
  Drop(left_out, &attempt_->pulled.contributions);
  auto* const strategy = dynamic_cast<WholeModelStrategy*>(strategy_.get());
  return strategy->Sums(attempt_->pulled.contributions);
}

absl::StatusOr<AggregatedPart> ParameterServer::AggregatePart(
    const std::vector<AnyActorHandle>& workers, const std::string& id,
    const std::string& sync_id, const std::vector<LeftOutWorker>& left_out,
    const std::vector<WideSum>& sums) {
  if (!attempt_.has_value() || attempt_->id != id) return HasRestarted();
  const absl::Time start = absl::Now();
  std::vector<Contribution>& contributions = attempt_->pulled.contributions;
  Drop(left_out, &contributions);
  SetWeightsInMean(&contributions);
  before_ = Now(id);
  auto* const whole = dynamic_cast<WholeModelStrategy*>(strategy_.get());
  absl::StatusOr<NamedTensors> result = RunStrategy(
      *strategy_, stats_.strategy, weights_, contributions,
      [&] {
        return whole == nullptr
                   ? strategy_->Aggregate(contributions)
                   : whole->AggregateWith(contributions, ValuesOf(sums));
      },
      NamesOf(workers));
  if (!result.ok()) {
    return AggregatedPart{.strategy = Outcome::Of(result.status())};
  }
  std::vector<int64_t> contributors;
  for (const Contribution& contribution : contributions) {
    contributors.push_back(contribution.worker_id);
  }
  contributions.clear();
  stats_.contributions_accepted += static_cast<int64_t>(contributors.size());
  for (const LeftOutWorker& worker : left_out) {
    ++(worker.refused ? stats_.contributions_refused
                      : stats_.contributions_lost);
    Warn(worker.why.status());
  }
  CountNewSync();
  view_->set_places(attempt_->pulled.places);
  const absl::Status saved =
      Replace(*std::move(result), sync_id, std::move(contributors), id);
  stats_.seconds_aggregate += absl::ToDoubleSeconds(absl::Now() - start);
  return AggregatedPart{.save = Outcome::Of(saved)};
}

Outcome ParameterServer::StartPart(const std::vector<AnyActorHandle>& workers,
                                   const std::string& id) {
  attempt_.reset();
  const absl::StatusOr<PulledWeights> first =
      Pull({workers.front()}, Pulled::kWeightsInFull);
  if (!first.ok()) return Outcome::Of(first.status());
  const std::vector<Contribution>& contributions = first->contributions;
  const absl::Status finite = CheckFinite(contributions.front().tensors,
                                          WorkerName(0, workers.front()));
  if (!finite.ok()) return Outcome::Of(finite);
  NamedTensors weights = MeanOfModels(contributions);  // These are lent.
  before_ = Now(id);
  const absl::Status reset = ResetStrategy(*strategy_, weights);
  if (!reset.ok()) return Outcome::Of(reset);
  view_->set_places(first->places);
  return Outcome::Of(Replace(std::move(weights), "", {}, id));
}

Outcome ParameterServer::SetPart(const ReadOnly<WeightMessage>& part,
                                 const std::string& id) {
  attempt_.reset();
  if (layout_.has_value()) {
    absl::Status fits = CheckLayout(part.value.tensors, *layout_, "PushWeights",
                                    "the parameter server");
    if (fits.ok() && part.value.parts != view_->places()) {
      fits = absl::InvalidArgumentError(
          "PushWeights: tensors have other shapes than the parameter server's");
    }
    if (!fits.ok()) return Outcome::Of(fits);
  }
  NamedTensors weights;  // A copy: these are lent.
  for (const auto& [name, tensor] : part.value.tensors) {
    weights.emplace_back(name, tensor.clone());
  }
  before_ = Now(id);
  UpdateInfo(weights, part.value.parts);
  const absl::Status reset = ResetStrategy(*strategy_, weights);
  if (!reset.ok()) return Outcome::Of(reset);
  view_->set_places(part.value.parts);
  return Outcome::Of(Replace(std::move(weights), "", {}, id));
}

Outcome ParameterServer::ImportPart(const std::string& bytes,
                                    const std::string& id) {
  attempt_.reset();
  absl::StatusOr<ServerState> state = ReadState(bytes);
  if (state.ok() && state->view_id != id) {
    state = absl::InvalidArgumentError(
        "the states of a parameter server's shards are of different times");
  }
  if (!state.ok()) return Outcome::Of(state.status());
  // Another number of shards has been refused before: another cut is another
  // model.
  if (layout_.has_value() && state->places != view_->places()) {
    return Outcome::Of(absl::InvalidArgumentError(
        "the state of a parameter server is of another model than this one's"));
  }
  if (id.empty()) return Outcome::Of(ImportState(bytes));
  before_ = Now(id);
  const absl::Status taken = TakeState(*std::move(state));
  if (!taken.ok()) return Outcome::Of(taken);
  sync_counted_ = true;
  return Outcome::Of(options_.state_dir.empty()
                         ? absl::OkStatus()
                         : SaveTo(PreparedFolder(options_.state_dir)));
}

absl::Status ParameterServer::MovePrepared() {
  if (options_.state_dir.empty()) return absl::OkStatus();
  return MoveServerState(PreparedFolder(options_.state_dir),
                         options_.state_dir);
}

absl::Status ParameterServer::CommitPart(const std::string& id) {
  if (!before_.has_value() && view_->id() == id) return absl::OkStatus();
  if (before_.has_value() && view_->id() == id) {
    MR_RETURN_IF_ERROR(MovePrepared());
    before_.reset();
    return absl::OkStatus();
  }
  if (before_.has_value() || prepared_ != id) {
    return absl::FailedPreconditionError(
        "the shard has prepared no such weights");
  }
  MR_RETURN_IF_ERROR(MovePrepared());  // By the process before this one.
  prepared_.clear();
  Restore();
  return absl::OkStatus();
}

absl::Status ParameterServer::AbandonPart(bool reset) {
  attempt_.reset();
  prepared_.clear();
  const bool durable = !options_.state_dir.empty();
  if (durable) {
    MR_RETURN_IF_ERROR(RemoveServerState(PreparedFolder(options_.state_dir)));
  }
  if (before_.has_value()) {
    ReturnTo(*std::exchange(before_, std::nullopt));
    if (reset || !durable || weights_.empty()) {
      MR_RETURN_IF_ERROR(ResetStrategy(*strategy_, weights_));
    } else {
      MR_ASSIGN_OR_RETURN(std::optional<ServerState> state,
                          LoadServerState(options_.state_dir));
      if (!state.has_value()) {
        return absl::DataLossError(
            absl::StrCat("the state in ", options_.state_dir, " is gone"));
      }
      MR_RETURN_IF_ERROR(
          RestoreStrategy(*strategy_,
                          {.tensors = std::move(state->strategy_tensors.value),
                           .scalars = std::move(state->strategy_scalars)},
                          weights_));
    }
  } else if (reset) {
    MR_RETURN_IF_ERROR(ResetStrategy(*strategy_, weights_));
  }
  // So that no later process of this shard alone remembers.
  return reset && durable ? Save() : absl::OkStatus();
}

PushedPart ParameterServer::PushPart(const std::vector<AnyActorHandle>& workers,
                                     const std::vector<LeftOutWorker>& left_out,
                                     bool of_sync) {
  std::vector<LeftOut> out;
  for (const LeftOutWorker& worker : left_out) {
    out.push_back({.worker = static_cast<size_t>(worker.worker),
                   .status = worker.why.status(),
                   .refused = worker.refused});
  }
  std::vector<bool> holds_view;  // Only of the first push after a pull.
  if (attempt_.has_value() && attempt_->id == view_->id()) {
    holds_view = std::move(attempt_->pulled.holds_view);
  }
  attempt_.reset();
  PushedPart part = {.bytes = -stats_.bytes_pushed,
                     .bytes_saved = -stats_.bytes_saved_push};
  const absl::Status pushed = Push(workers, out, holds_view, &part.behind);
  if (of_sync) CountSync(pushed.ok());
  part.outcome = Outcome::Of(pushed);
  part.bytes += stats_.bytes_pushed;
  part.bytes_saved += stats_.bytes_saved_push;
  return part;
}

ReadOnly<WeightMessage> ParameterServer::GetPart() const {
  if (gradients_ != nullptr) {
    const std::shared_ptr<const ModelSnapshot> model = gradients_->Snapshot();
    return {{.part = role_.shard,
             .num_parts = role_.num_shards,
             .tensors = model->weights,
             .parts = model->places}};
  }
  return {{.id = view_->id(),
           .part = role_.shard,
           .num_parts = role_.num_shards,
           .tensors = weights_,
           .parts = view_->places()}};
}

absl::StatusOr<ActorHandle<ParameterServer>> CreateShardedServer(
    const Cluster& cluster, const std::string& strategy,
    const StrategyOptions& options, const ServerOptions& server_options,
    const ActorOptions& actor_options, std::vector<AnyActorHandle>* shards) {
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> nodes, NodeIds(cluster));
  const bool is_placed = !actor_options.node_id.empty() ||
                         !actor_options.node_labels.empty() ||
                         actor_options.bundle_index.has_value();
  ShardRole front = {.num_shards = server_options.num_shards};
  // An error leaves no shards behind.
  auto end_shards = absl::MakeCleanup([&front] {
    for (const AnyActorHandle& shard : front.shards) {
      const absl::Status killed = shard.Kill();
      if (!killed.ok()) VLOG(1) << "killing a shard: " << killed;
    }
  });
  for (int64_t i = 0; i < server_options.num_shards; ++i) {
    ActorOptions actor = actor_options;
    actor.name.clear();
    if (!is_placed && !nodes.empty()) {
      actor.node_id = nodes[static_cast<size_t>(i) % nodes.size()];
      actor.soft_affinity = true;
    }
    ServerOptions of_shard = server_options;
    if (!of_shard.state_dir.empty()) {
      of_shard.state_dir =
          ShardFolder(of_shard.state_dir, i, server_options.num_shards);
    }
    MR_ASSIGN_OR_RETURN(
        const ActorHandle<ParameterServer> shard,
        cluster.CreateActor<ParameterServer>(
            actor, strategy, options, of_shard,
            ShardRole{.shard = i, .num_shards = server_options.num_shards}));
    front.shards.push_back(shard);
  }
  ActorOptions actor = actor_options;
  // It is to be told of them while it synchronises.
  actor.concurrency_groups.push_back(
      {.name = "shards",
       .methods = {MethodName<&ParameterServer::GetShards>()}});
  MR_ASSIGN_OR_RETURN(ActorHandle<ParameterServer> server,
                      cluster.CreateActor<ParameterServer>(
                          actor, strategy, options, server_options, front));
  std::move(end_shards).Cancel();
  if (shards != nullptr) *shards = front.shards;
  return server;
}

absl::Status StopParameterServer(const ActorHandle<ParameterServer>& server) {
  const auto asked = server.Call<&ParameterServer::GetShards>();
  const auto saving = server.Call<&ParameterServer::SaveNow>();
  const absl::StatusOr<std::vector<AnyActorHandle>> shards =
      asked.Get(kStopTimeout);
  absl::Status saved;
  // One in front of shards has nothing to save, and may be at work for long.
  if (shards.ok() && shards->empty()) saved = saving.Get(kSaveTimeout);
  absl::Status first_error = server.Kill();
  first_error.Update(shards.status());
  first_error.Update(saved);
  if (!shards.ok()) return first_error;
  for (const AnyActorHandle& shard : *shards) {
    first_error.Update(shard.Kill());
  }
  return first_error;
}

}  // namespace miniray::ps
