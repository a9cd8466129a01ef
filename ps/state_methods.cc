// The methods of ParameterServer that concern what it keeps in a folder.

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "ps/parameter_server.h"
#include "ps/run_strategy.h"
#include "ps/server_state.h"
#include "ps/shard_methods.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

void ParameterServer::Restore() {
  const ActorContext* const context = ActorContext::Current();
  if (context != nullptr) stats_.num_restarts = context->num_restarts();
  CheckFolderIsOfThisCut();
  if (gradients_ != nullptr) {
    const absl::Status restored = gradients_->Restore(stats_.num_restarts);
    if (!restored.ok()) throw std::runtime_error(restored.ToString());
    last_sync_ = gradients_->last_sync();
    stats_.num_syncs = gradients_->num_syncs();
    return;
  }
  if (IsShard()) {
    const auto prepared = LoadServerState(PreparedFolder(options_.state_dir));
    if (!prepared.ok()) throw std::runtime_error(prepared.status().ToString());
    prepared_ = prepared->has_value() ? (*prepared)->view_id : "";
  }
  absl::StatusOr<std::optional<ServerState>> found = LoadOwnServerState(
      options_.state_dir, stats_.strategy, stats_.num_restarts);
  if (!found.ok()) throw std::runtime_error(found.status().ToString());
  if (!found->has_value()) {
    // So that the next process knows that this is the place.
    if (const absl::Status saved = Save(); !saved.ok()) {
      throw std::runtime_error(saved.ToString());
    }
    return;
  }
  ServerState& state = **found;
  worker_weights_ = std::move(state.worker_weights);
  stats_.version = state.version;
  stats_.num_syncs = state.num_syncs;
  last_sync_ = std::move(state.last_sync);
  if (state.weights.value.empty()) return;
  if (IsShard()) {
    view_->set_places(state.places);
    if (state.knows_buffers) buffer_names_ = std::move(state.buffer_names);
    UpdateInfo(state.weights.value, state.places);
  } else if (state.knows_buffers) {
    const absl::Status known =
        SetBufferNames(state.weights.value, std::move(state.buffer_names));
    if (!known.ok()) throw std::runtime_error(known.ToString());
  }
  Adopt(std::move(state.weights.value));
  if (view_.has_value()) {
    const bool is_own = state.view.value.empty();
    view_->Restore(is_own ? weights_ : std::move(state.view.value),
                   InfoOfModel(weights_), std::move(state.contributors),
                   state.view_id.empty() ? NewId("weights") : state.view_id);
  }
  const absl::Status restored =
      RestoreStrategy(*strategy_,
                      {.tensors = std::move(state.strategy_tensors.value),
                       .scalars = std::move(state.strategy_scalars)},
                      weights_);
  if (!restored.ok()) {
    throw std::runtime_error(absl::StrCat("the state in ", options_.state_dir,
                                          ": ", restored.message()));
  }
  LOG(INFO) << "goes on with version " << stats_.version << " of "
            << options_.state_dir;
}

absl::Status ParameterServer::Save() { return SaveTo(options_.state_dir); }

absl::Status ParameterServer::SaveTo(const std::string& folder) {
  ServerState state{
      .strategy = stats_.strategy,
      .version = stats_.version,
      .num_syncs = stats_.num_syncs,
      .last_sync = last_sync_,
      .weights = {weights_},
      .buffer_names = buffer_names_.value_or(std::vector<std::string>()),
      .knows_buffers = buffer_names_.has_value(),
      .worker_weights = worker_weights_};
  MR_ASSIGN_OR_RETURN(StrategyState strategy, strategy_->SaveState());
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
  MR_RETURN_IF_ERROR(Annotate(SaveServerState(folder, state),
                              "save the parameter server's state"));
  unsaved_ = 0;
  ++stats_.num_saves;
  return absl::OkStatus();
}

}  // namespace miniray::ps
