// The methods of ParameterServer that concern what it keeps in a folder.

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "ps/parameter_server.h"
#include "ps/run_strategy.h"
#include "ps/server_state.h"
#include "ps/shard_methods.h"
#include "ps/shard_states.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

void ParameterServer::Restore() {
  const ActorContext* const context = ActorContext::Current();
  if (context != nullptr) stats_.num_restarts = context->num_restarts();
  CheckFolderIsOfThisCut();
  if (gradients_ != nullptr) {
    const absl::Status restored = gradients_->Restore(stats_.num_restarts);
    if (!restored.ok()) throw std::runtime_error(restored.ToString());
    stats_.num_syncs = gradients_->num_syncs();
    return;
  }
  if (IsShard()) {
    const auto prepared = LoadServerState(PreparedFolder(options_.state_dir));
    if (!prepared.ok()) throw std::runtime_error(prepared.status().ToString());
    prepared_ = prepared->has_value() ? (*prepared)->view_id : "";
  }
  absl::StatusOr<std::optional<ServerState>> found =
      LoadOwnServerState(options_.state_dir, strategy_id_, stats_.num_restarts);
  if (!found.ok()) throw std::runtime_error(found.status().ToString());
  if (!found->has_value()) {
    // So that the next process knows that this is the place.
    if (const absl::Status saved = Save(); !saved.ok()) {
      throw std::runtime_error(saved.ToString());
    }
    return;
  }
  ServerState& state = **found;
  const int64_t version = state.version;
  const absl::Status taken = TakeState(std::move(state));
  if (!taken.ok()) {
    throw std::runtime_error(absl::StrCat("the state in ", options_.state_dir,
                                          ": ", taken.message()));
  }
  LOG_IF(INFO, !weights_.empty())
      << "goes on with version " << version << " of " << options_.state_dir;
}

absl::Status ParameterServer::TakeState(ServerState state) {
  worker_weights_ = std::move(state.worker_weights);
  stats_.version = state.version;
  stats_.num_syncs = state.num_syncs;
  last_sync_ = std::move(state.last_sync);
  if (state.weights.value.empty()) return ForgetWeights();
  if (IsShard()) {
    view_->set_places(state.places);
    if (state.knows_buffers) buffer_names_ = std::move(state.buffer_names);
    UpdateInfo(state.weights.value, state.places);
  } else if (state.knows_buffers) {
    MR_RETURN_IF_ERROR(
        SetBufferNames(state.weights.value, std::move(state.buffer_names)));
  }
  Adopt(std::move(state.weights.value));
  if (view_.has_value()) {
    const bool is_own = state.view.value.empty();
    view_->Restore(is_own ? weights_ : std::move(state.view.value),
                   InfoOfModel(weights_), std::move(state.contributors),
                   state.view_id.empty() ? NewId("weights") : state.view_id);
  }
  return RestoreStrategy(*strategy_,
                         {.tensors = std::move(state.strategy_tensors.value),
                          .scalars = std::move(state.strategy_scalars)},
                         weights_);
}

absl::Status ParameterServer::ForgetWeights() {
  weights_.clear();
  layout_.reset();
  buffer_names_.reset();
  info_.reset();
  attempt_.reset();
  if (view_.has_value()) MakeView();
  return ResetStrategy(*strategy_, {});
}

absl::Status ParameterServer::Save() { return SaveTo(options_.state_dir); }

absl::StatusOr<ServerState> ParameterServer::StateNow() const {
  ServerState state{
      .strategy = strategy_id_,
      .version = stats_.version,
      .num_syncs = stats_.num_syncs,
      .last_sync = last_sync_,
      .weights = {weights_},
      .buffer_names = buffer_names_.value_or(std::vector<std::string>()),
      .knows_buffers = buffer_names_.has_value(),
      .worker_weights = worker_weights_};
  MR_ASSIGN_OR_RETURN(StrategyState strategy, SaveStrategy(*strategy_));
  state.strategy_tensors = {std::move(strategy.tensors)};
  state.strategy_scalars = std::move(strategy.scalars);
  if (view_.has_value()) {
    state.view_id = view_->id();
    state.contributors = view_->contributors();
    state.places = view_->places();
    if (options_.to_workers.method != Compression::kNone) {
      state.view = {view_->tensors()};
    }
  }
  return state;
}

absl::Status ParameterServer::SaveTo(const std::string& folder) {
  MR_ASSIGN_OR_RETURN(const ServerState state, StateNow());
  MR_RETURN_IF_ERROR(Guarded("save the parameter server's state", [&] {
    return Annotate(SaveServerState(folder, state),
                    "save the parameter server's state");
  }));
  unsaved_ = 0;
  ++stats_.num_saves;
  return absl::OkStatus();
}

absl::Status ParameterServer::SaveNow() {
  if (options_.state_dir.empty()) return absl::OkStatus();
  if (gradients_ != nullptr) return gradients_->SaveUnsaved();
  // Shards save all that they do (save_every is 1).
  return unsaved_ > 0 && !IsShard() && sharded_ == nullptr ? Save()
                                                           : absl::OkStatus();
}

absl::Status ParameterServer::CheckTravels() const {
  if (!strategy_->TakesGradients()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the state of a parameter server with a strategy that takes gradients is "
      "kept in its state_dir only");
}

absl::StatusOr<std::string> ParameterServer::ExportState() const {
  MR_RETURN_IF_ERROR(CheckTravels());
  if (sharded_ != nullptr) return sharded_->ExportState();
  if (!options_.keep_weights && stats_.version > 0) {
    // A server that has let go of them is not one that never had any.
    MR_RETURN_IF_ERROR(PullWeights().status());
  }
  MR_ASSIGN_OR_RETURN(const ServerState state, StateNow());
  MR_ASSIGN_OR_RETURN(const absl::Cord bytes, EncodeValue(state));
  return std::string(bytes);
}

absl::StatusOr<ServerState> ParameterServer::ReadState(
    const std::string& bytes) const {
  if (AreShardStates(bytes)) {
    MR_ASSIGN_OR_RETURN(const ShardStates states, UnpackShardStates(bytes));
    return absl::FailedPreconditionError(
        absl::StrCat("the state is of a server with ", states.shards.size(),
                     " shards (num_shards), and this one has 1"));
  }
  // The tensors may lie in it as long as they live.
  auto held = std::make_shared<std::string>(bytes);
  ServerState state;
  MR_RETURN_IF_ERROR(Annotate(
      DecodeValue(
          absl::MakeCordFromExternal(*held, [held](absl::string_view) {}),
          &state),
      "the state of a parameter server, of another release perhaps"));
  const std::string other = OtherStrategyText(state.strategy, strategy_id_);
  if (!other.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state is of ", other));
  }
  if (state.weights.value.empty()) {
    // Shards would have to forget theirs all at once.
    if (!IsShard() || weights_.empty()) return state;
    return absl::FailedPreconditionError(
        "the state is of a server without weights, and this one has some and "
        "several shards (num_shards): begin with an empty state_dir");
  }
  if (layout_.has_value()) {
    MR_RETURN_IF_ERROR(CheckLayout(state.weights.value, *layout_,
                                   "the state of a parameter server",
                                   "this parameter server"));
  }
  return state;
}

absl::Status ParameterServer::ImportState(const std::string& bytes) {
  MR_RETURN_IF_ERROR(CheckTravels());
  if (sharded_ != nullptr) return sharded_->ImportState(bytes);
  MR_ASSIGN_OR_RETURN(ServerState state, ReadState(bytes));
  return GoOnFrom(std::move(state));
}

absl::Status ParameterServer::GoOnFrom(ServerState state) {
  // They are of another time.
  for (const auto& [worker, push] : late_pushes_) Cancel(push);
  late_pushes_.clear();
  taken_ = {};
  MR_RETURN_IF_ERROR(TakeState(std::move(state)));
  sync_counted_ = true;
  return options_.state_dir.empty() ? absl::OkStatus() : Save();
}

absl::Status ParameterServer::BeginAnew() {
  MR_RETURN_IF_ERROR(CheckTakes(/*gradients=*/false));
  if (sharded_ != nullptr) return sharded_->BeginAnew();
  if (stats_.version > 0) {
    LOG(INFO) << "begins anew, and not with version " << stats_.version
              << " of what there was";
  }
  if (IsShard() && !options_.state_dir.empty()) {
    MR_RETURN_IF_ERROR(RemoveServerState(PreparedFolder(options_.state_dir)));
  }
  before_.reset();
  prepared_.clear();
  return GoOnFrom({});
}

}  // namespace miniray::ps
