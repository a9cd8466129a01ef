#include "ps/gradient_model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "ps/compression/difference.h"
#include "ps/run_strategy.h"
#include "ps/tensor_info.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

constexpr char kServer[] = "the parameter server";

std::shared_ptr<const ModelSnapshot> MakeSnapshot(
    int64_t version, NamedTensors weights,
    std::shared_ptr<const std::vector<TensorInfo>> info,
    std::vector<TensorPart> places) {
  auto snapshot = std::make_shared<ModelSnapshot>();
  snapshot->version = version;
  snapshot->layout = ModelLayout::Of(weights);
  snapshot->weights = std::move(weights);
  snapshot->info = std::move(info);
  snapshot->places = std::move(places);
  return snapshot;
}

// Of the buffers' names a shard picks those that it has.
std::shared_ptr<const std::vector<TensorInfo>> InfoOfPart(
    const NamedTensors& weights, const std::vector<TensorPart>& places,
    const std::optional<std::vector<std::string>>& buffers) {
  std::set<std::string> names;
  if (buffers.has_value()) names.insert(buffers->begin(), buffers->end());
  auto info = std::make_shared<std::vector<TensorInfo>>();
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::string& name = weights[i].first;
    info->push_back({.is_buffer = buffers.has_value() ? names.contains(name)
                                                      : IsBufferName(name),
                     .offset = places[i].begin});
  }
  return info;
}

absl::StatusOr<std::shared_ptr<const std::vector<TensorInfo>>> InfoFor(
    const NamedTensors& weights,
    const std::optional<std::vector<std::string>>& buffers,
    const std::vector<TensorPart>& places) {
  if (!places.empty()) return InfoOfPart(weights, places, buffers);
  if (buffers.has_value()) return MakeInfo(weights, *buffers);
  return std::make_shared<const std::vector<TensorInfo>>(
      InfoOf({.tensors = weights}));
}

}  // namespace

GradientModel::GradientModel(GradientStrategy* strategy, StrategyId id,
                             const ServerOptions& options)
    : strategy_(strategy),
      id_(std::move(id)),
      options_(options),
      current_(std::make_shared<const ModelSnapshot>()) {}

std::shared_ptr<const ModelSnapshot> GradientModel::Snapshot() const {
  absl::MutexLock lock(&mu_);
  return current_;
}

int64_t GradientModel::num_saves() const {
  absl::MutexLock lock(&mu_);
  return num_saves_;
}

absl::StatusOr<GradientProgress> GradientModel::Restore(int64_t num_restarts) {
  if (options_.state_dir.empty()) return GradientProgress();
  MR_ASSIGN_OR_RETURN(
      std::optional<ServerState> found,
      LoadOwnServerState(options_.state_dir, id_, num_restarts));
  if (!found.has_value()) {
    // So that the next process knows that this is the place.
    MR_RETURN_IF_ERROR(Save(*Snapshot()));
    return GradientProgress();
  }
  if (found->knows_buffers) buffer_names_ = std::move(found->buffer_names);
  progress_ = {.last_sync = std::move(found->last_sync),
               .num_syncs = found->num_syncs,
               .clocks = std::move(found->clocks)};
  NamedTensors& weights = found->weights.value;
  if (weights.empty()) return progress_;
  MR_ASSIGN_OR_RETURN(auto info,
                      InfoFor(weights, buffer_names_, found->places));
  MR_RETURN_IF_ERROR(Annotate(
      RestoreStrategy(*strategy_,
                      {.tensors = std::move(found->strategy_tensors.value),
                       .scalars = std::move(found->strategy_scalars)},
                      weights),
      absl::StrCat("the state in ", options_.state_dir)));
  auto restored = MakeSnapshot(found->version, std::move(weights),
                               std::move(info), std::move(found->places));
  absl::MutexLock lock(&mu_);
  current_ = std::move(restored);
  return progress_;
}

absl::Status GradientModel::Start(
    NamedTensors weights, std::optional<std::vector<std::string>> buffers,
    const GradientProgress& progress, std::vector<TensorPart> places,
    int64_t version) {
  constexpr char kWho[] = "the weights to start from";
  const std::shared_ptr<const ModelSnapshot> before = Snapshot();
  if (version == 1 && before->version > 1) {
    return absl::FailedPreconditionError(
        "the weights to start from: the parameter server has taken steps "
        "already");
  }
  MR_RETURN_IF_ERROR(CheckValues(weights, kWho));
  if (!before->empty()) {
    MR_RETURN_IF_ERROR(CheckLayout(weights, before->layout, kWho, kServer));
  }
  if (!before->empty() && before->places != places) {
    return absl::InvalidArgumentError(
        "the weights to start from have other shapes than the parameter "
        "server's");
  }
  if (!buffers.has_value()) buffers = buffer_names_;
  MR_ASSIGN_OR_RETURN(auto info, InfoFor(weights, buffers, places));
  MR_RETURN_IF_ERROR(ResetStrategy(*strategy_, weights));
  buffer_names_ = std::move(buffers);
  progress_ = progress;
  if (version != 1) version = std::max(version, before->version + 1);
  auto next = MakeSnapshot(version, std::move(weights), std::move(info),
                           std::move(places));
  const absl::Status saved = SaveIfDue(*next);
  absl::MutexLock lock(&mu_);
  current_ = std::move(next);
  return saved;
}

absl::Status GradientModel::CheckAndComplete(const ModelSnapshot& model,
                                             absl::string_view who,
                                             NamedTensors* gradients) {
  // A shard may have nothing but buffers.
  const bool may_be_empty =
      std::all_of(model.info->begin(), model.info->end(),
                  [](const TensorInfo& info) { return info.is_buffer; });
  if (!gradients->empty() || !may_be_empty) {
    MR_RETURN_IF_ERROR(ps::CheckForm(*gradients, who));
  }
  NamedTensors complete;
  complete.reserve(model.weights.size());
  size_t next = 0;
  for (size_t i = 0; i < model.weights.size(); ++i) {
    const auto& [name, value] = model.weights[i];
    const bool is_there =
        next < gradients->size() && (*gradients)[next].first == name;
    if (!is_there && (*model.info)[i].is_buffer) {
      complete.emplace_back(name, value);
    } else if (next < gradients->size()) {
      complete.push_back(std::move((*gradients)[next++]));
    }
  }
  for (; next < gradients->size(); ++next) {
    complete.push_back(std::move((*gradients)[next]));
  }
  *gradients = std::move(complete);
  return CheckLayout(*gradients, model.layout, who, kServer);
}

void GradientModel::CompleteAnew(const ModelSnapshot& from,
                                 const ModelSnapshot& now,
                                 NamedTensors* gradients) {
  for (size_t i = 0; i < gradients->size(); ++i) {
    at::Tensor& tensor = (*gradients)[i].second;
    if ((*from.info)[i].is_buffer && tensor.is_same(from.weights[i].second)) {
      tensor = now.weights[i].second;
    }
  }
}

absl::Status GradientModel::Decode(const ModelSnapshot& model,
                                   absl::string_view who,
                                   const CompressionOptions& compression,
                                   NamedTensors* gradients) {
  MR_RETURN_IF_ERROR(Annotate(Validate(compression, "compression"), who));
  NamedTensors like;
  size_t at = 0;  // Of the model: buffers may be missing.
  for (const auto& [name, tensor] : *gradients) {
    while (at < model.weights.size() && model.weights[at].first != name) ++at;
    if (at == model.weights.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": has '", name, "', which ", kServer,
                       " has not, or not after the tensor before it"));
    }
    like.push_back(model.weights[at++]);
  }
  absl::StatusOr<NamedTensors> decoded =
      DecodeDifference(compression, *gradients, like);
  if (!decoded.ok()) return Annotate(decoded.status(), who);
  *gradients = *std::move(decoded);
  return absl::OkStatus();
}

absl::StatusOr<NamedTensors> GradientModel::Step(
    absl::Span<const Contribution> contributions, double lr_scale,
    absl::FunctionRef<std::string(int)> worker_name) {
  return RunStrategy(
      *strategy_, id_.text, Snapshot()->weights, contributions,
      [&] { return strategy_->Step(contributions, lr_scale); }, worker_name);
}

absl::Status GradientModel::Publish(NamedTensors weights,
                                    const GradientProgress& progress) {
  const std::shared_ptr<const ModelSnapshot> before = Snapshot();
  auto next = std::make_shared<ModelSnapshot>(*before);
  ++next->version;
  next->weights = std::move(weights);
  progress_ = progress;
  const absl::Status saved = SaveIfDue(*next);
  absl::MutexLock lock(&mu_);
  current_ = std::move(next);
  return saved;
}

absl::Status GradientModel::SaveIfDue(const ModelSnapshot& model) {
  if (options_.state_dir.empty() || ++unsaved_ < options_.save_every) {
    return absl::OkStatus();
  }
  return Save(model);
}

absl::Status GradientModel::SaveIfFailed() {
  if (unsaved_ < options_.save_every || options_.state_dir.empty()) {
    return absl::OkStatus();
  }
  return Save(*Snapshot());
}

absl::Status GradientModel::SaveUnsaved() {
  if (unsaved_ == 0 || options_.state_dir.empty()) return absl::OkStatus();
  return Save(*Snapshot());
}

absl::Status GradientModel::Save(const ModelSnapshot& model) {
  ServerState state{
      .strategy = id_,
      .version = model.version,
      .num_syncs = progress_.num_syncs,
      .last_sync = progress_.last_sync,
      .weights = {model.weights},
      .buffer_names = buffer_names_.value_or(std::vector<std::string>()),
      .knows_buffers = buffer_names_.has_value(),
      .clocks = progress_.clocks,
      .places = model.places};
  MR_ASSIGN_OR_RETURN(StrategyState strategy, SaveStrategy(*strategy_));
  state.strategy_tensors = {std::move(strategy.tensors)};
  state.strategy_scalars = std::move(strategy.scalars);
  MR_RETURN_IF_ERROR(Guarded("save the parameter server's state", [&] {
    return Annotate(SaveServerState(options_.state_dir, state),
                    "save the parameter server's state");
  }));
  unsaved_ = 0;
  absl::MutexLock lock(&mu_);
  ++num_saves_;
  return absl::OkStatus();
}

}  // namespace miniray::ps
